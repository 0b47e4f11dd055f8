"""The cluster on Kubernetes: a pod and an agent for each node, and the real Toxiproxy between them.

A node's incarnations follow each other in the same pod, as containers of a pod do that Kubernetes restarts: what it
has on its disk stays. Where the pod is gone, the next incarnation gets a new one, with an empty disk.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from harness.cleanup.undo_log import Namespace, UndoLog
from harness.cluster.base import ClusterError, NodeSpec, Recorder
from harness.cluster.commanded import CommandCluster
from harness.cluster.incarnation import STOP_TIMEOUT_S
from harness.cluster.kubernetes.api import Api, AwayError, KubernetesError
from harness.cluster.kubernetes.forward import Forward
from harness.cluster.kubernetes.manifests import AGENT_PORT, API_PORT, LINKS, NODES, OWNER, Manifests
from harness.cluster.kubernetes.settings import KubernetesSettings
from harness.cluster.kubernetes.watch import Watch
from harness.cluster.remote import agent
from harness.cluster.remote.clocks import Clock, Comparing, Reading
from harness.cluster.remote.connection import Connection
from harness.cluster.remote.node import Host, RemoteNode
from harness.core.programs import Program
from harness.links.client import LinkError, Links

_LISTEN, _FIRST_LINK = 7000, 7001
_ANY = "0.0.0.0"  # noqa: S104 - of a pod's own network
_LOOK_S = 0.1
_CLOCK_READINGS, _CLOCK_ANSWERS_S, _CLOCKS_S = 8, 2.0, 2.0
_SETTINGS = "cluster.json"
RUN_LABEL_LENGTH = 12


class KubernetesCluster(CommandCluster[RemoteNode]):
    """Implements `harness.cluster.base.Cluster`."""

    def __init__(self, run: Path, record: Recorder, undo_log: UndoLog, settings: KubernetesSettings) -> None:
        """See `SupervisedCluster`.

        Raises:
            KubernetesError: the cluster can't be used.
        """
        super().__init__(run, record, undo_log)
        (run / "logs").mkdir(parents=True, exist_ok=True)
        self._settings = settings
        self._api = Api(settings.context)
        self._objects = Manifests(settings, undo_log.token[:RUN_LABEL_LENGTH], run)
        self._owes: int | None = None
        self._watch: Watch | None = None
        self._hosts: dict[str, Host] = {}
        self._owner: Host | None = None
        self._toxiproxy: Links | None = None
        self._forwards: dict[int, Forward] = {}  # Toxiproxy's port -> ours that leads to it
        self._ports: dict[str, int] = {}  # side of a link -> Toxiproxy's port for it
        self._upstreams: dict[str, str] = {}
        self._comparing: Comparing | None = None
        self._clocks_at = 0.0

    # -- the beginning -------------------------------------------------------------------------------------------------

    def start(self, nodes: Sequence[NodeSpec]) -> None:
        """The namespace, the owner, the links, the node that others connect to, then all others."""
        self._owes = self._undo_log.record(Namespace, context=self._settings.context, run=self._objects.run,
                                           namespace=self._objects.namespace)
        self._begin()
        for spec in nodes:
            self._make_pod(spec, spec.incarnation)
        self._wait_links()
        for spec in (node for node in nodes if node.listens):
            self._spawn(spec, spec.incarnation)
            self._nodes[spec.name].wait_started(self._settings.start_within)
            self._listening_port(spec.name)
        for spec in (node for node in nodes if not node.listens):
            self._link(spec)
            self._spawn(spec, spec.incarnation)
        for spec in nodes:
            self._nodes[spec.name].wait_started(self._settings.start_within)
        self._comparing = Comparing(self._readable)

    def join(self, node: NodeSpec) -> None:
        """Make its pod and its link, start it."""
        self._make_pod(node, node.incarnation)
        self._link(node)
        self._spawn(node, node.incarnation)

    def _begin(self) -> None:
        """Everything but the nodes."""
        objects, make = self._objects, partial(self._api.make, self._objects.namespace)
        if not self._settings.namespace:
            make(objects.own_namespace())
        job = self._until_allowed(lambda: make(objects.owner_job()))
        self._objects = objects = Manifests(objects.settings, objects.run, objects.folder, str(job.metadata.uid))
        for one in (objects.secret(self._undo_log.token), objects.agent(Path(agent.__file__).read_text()),
                    objects.service(NODES, {}), objects.service(LINKS, {"diloco-chaos/part": LINKS}), objects.links()):
            make(one)
        self._watch = Watch(self._api, objects.namespace, objects.run)
        self._owner = Host(OWNER, Connection(OWNER, self._run, self._undo_log.token, self._dial_newest(OWNER)))

    def _until_allowed(self, make: Callable[[], Any]) -> Any:
        """A namespace that was just made takes a moment to be one that things can be made in."""
        until = time.monotonic() + STOP_TIMEOUT_S * 2
        while True:
            try:
                return make()
            except AwayError:
                raise
            except KubernetesError:
                if self._settings.namespace or time.monotonic() > until:
                    raise
                time.sleep(_LOOK_S)

    def _make_pod(self, spec: NodeSpec, number: int) -> None:
        """A pod for a node, and a connection with its agent that is there once it runs."""
        if (before := self._hosts.pop(spec.name, None)) is not None:
            before.close()
        manifest = self._objects.node(spec.name, number, spec.reads, spec.machine)
        pod = manifest["metadata"]["name"]
        self._api.make(self._objects.namespace, manifest)
        dial = partial(self._api.dial, self._objects.namespace, pod, AGENT_PORT)
        host = Host(pod, Connection(spec.name, self._run, self._undo_log.token, dial))
        self._hosts[spec.name] = host
        host.soon(lambda: self._provide(host, spec))

    def _provide(self, host: Host, spec: NodeSpec) -> None:
        """Wait for its agent, give it the files that the node needs, and compare clocks."""
        until = time.monotonic() + self._settings.start_within
        while not host.agent.wait(_LOOK_S):
            if host.lost or time.monotonic() > until:
                raise ClusterError(f"{spec.name}: {host.lost or self._why_not(host.name)}")
        for path in (self._run / _SETTINGS, *spec.reads):
            host.agent.ask("put", path.read_bytes(), path=str(path), within=self._settings.start_within)
        for _ in range(_CLOCK_READINGS):
            host.clock.add(host.agent.clock())

    def _why_not(self, pod: str) -> str:
        """What keeps a pod from running, as Kubernetes tells it."""
        for one in self._api.pods(self._objects.namespace, self._objects.run):
            if one.metadata.name != pod:
                continue
            told = [f"{waits.reason}: {waits.message or ''}" for status in one.status.container_statuses or []
                    if (waits := status.state.waiting) is not None]
            told += [condition.message for condition in one.status.conditions or []
                     if condition.status == "False" and condition.message]
            return (f"its pod does not run within {self._settings.start_within:g} s: "
                    f"{'; '.join(told) or 'Kubernetes does not say why'}")
        return "its pod is gone"

    def _spawn(self, spec: NodeSpec, number: int) -> None:
        if self._hosts[spec.name].lost:
            self._make_pod(spec, number)
        self._nodes[spec.name] = RemoteNode(spec, number, self._undo_log, self._hosts[spec.name], self._start)
        self._record("spawn", target=spec.name, incarnation=number, pod=self._hosts[spec.name].name)

    def _start(self, node: RemoteNode) -> None:
        """Have a node's agent start an incarnation; called in the host's thread."""
        node.ahead = node.host.clock.best(time.monotonic()).ahead
        argv = node.spec.command(node.incarnation, python="python3", host=_ANY, listen=_LISTEN,
                                 connect=self._addresses.get(node.name, ""), ahead=node.ahead)
        node.agent.ask("spawn", name=node.process, argv=argv)

    # -- what goes on --------------------------------------------------------------------------------------------------

    def poll(self) -> None:
        """Notice deaths, pods that are gone, and restart what is due."""
        if self._watch is not None:
            for host in self._hosts.values():
                host.lost = host.lost or self._watch.lost.get(host.name, "")
        super().poll()
        now = time.monotonic()
        if now >= self._clocks_at:
            self._clocks_at = now + _CLOCKS_S
            self._record_clocks(now)

    def _record_clocks(self, now: float) -> None:
        for node in self._everyone():
            if node.alive and node.ahead is not None:
                best = node.host.clock.best(now)
                self._record("clock", target=node.name, incarnation=node.incarnation,
                             ahead=round(best.ahead - node.ahead, 6), error=round(best.error, 6))

    def _readable(self) -> list[tuple[Clock, Callable[[], Reading]]]:
        return [(host.clock, partial(host.agent.clock, _CLOCK_ANSWERS_S)) for host in list(self._hosts.values())
                if host.agent.connected]

    # -- links ---------------------------------------------------------------------------------------------------------

    def _link(self, spec: NodeSpec) -> None:
        self._addresses[spec.name] = self._proxy(spec.name, f"{spec.connects_to}.{self._objects.name(NODES)}:{_LISTEN}")

    def _proxy(self, side: str, upstream: str) -> str:
        self._ports[side], self._upstreams[side] = _FIRST_LINK + len(self._ports), upstream
        self._make(side)
        return f"{self._objects.name(LINKS)}:{self._ports[side]}"

    def _make(self, side: str) -> None:
        self._links().create(side, self._upstreams[side], listen=f"{_ANY}:{self._ports[side]}",
                             enabled=side not in self._disabled)

    def _asked_at(self, address: str) -> str:
        return self._forward(int(address.rpartition(":")[2])).address

    def _forward(self, port: int) -> Forward:
        if port not in self._forwards:
            self._forwards[port] = Forward(self._dial_newest(LINKS, port))
        return self._forwards[port]

    def _links(self) -> Links:
        if self._toxiproxy is None:
            raise ClusterError("the links are not up yet")
        return self._toxiproxy

    def _wait_links(self) -> None:
        links, until = Links(self._forward(API_PORT).address), time.monotonic() + self._settings.start_within
        while True:
            try:
                links.version()
                break
            except LinkError as error:
                if time.monotonic() > until:
                    raise ClusterError(f"Toxiproxy's pod does not answer within {self._settings.start_within:g} s: "
                                       f"{error}") from error
                time.sleep(_LOOK_S)
        self._toxiproxy = links

    def _dial_newest(self, part: str, port: int = AGENT_PORT) -> Callable[[], Any]:
        """Connections to the pod that is this part of the run now."""
        def dial() -> Any:
            pods = [pod for pod in self._api.pods(self._objects.namespace, self._objects.run, part)
                    if pod.status.phase == "Running" and pod.metadata.deletion_timestamp is None]
            if not pods:
                raise KubernetesError(f"no pod of {part} runs")
            newest = max(pods, key=lambda pod: pod.metadata.creation_timestamp)
            return self._api.dial(self._objects.namespace, newest.metadata.name, port)
        return dial

    # -- the end -------------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """SIGTERM, SIGKILL after two seconds, and everything is removed. Where the API server does not answer, that
        stays owed."""
        for node in self._everyone():
            node.stop()
        until = time.monotonic() + STOP_TIMEOUT_S
        for node in self._everyone():
            node.reap(until)
        if self._comparing is not None:
            self._comparing.close()
        if self._watch is not None:
            self._watch.close()
        for host in (*self._hosts.values(), *([self._owner] if self._owner else [])):
            host.close()
        for forward in self._forwards.values():
            forward.close()
        if self._owes is not None:
            try:
                self._api.remove(self._objects.namespace, self._objects.run)
                self._undo_log.complete(self._owes)
                self._owes = None
            except KubernetesError as error:
                self._record("warning", reason=str(error))
        self._api.close()

    # -- nodes that are commands ---------------------------------------------------------------------------------------

    def _port_for(self, spec: NodeSpec, program: Program) -> int:
        return program.port or _LISTEN

    def _found_at(self, node: str) -> str:
        return f"{node}.{self._objects.name(NODES)}"

    def _seen_at(self, node: str) -> str:
        return ""

    def _place(self) -> dict[str, str]:
        return {"python": "python3", "host": _ANY}

    def _link_server(self) -> int:
        return 0

    def _listener(self, host: str, port: int) -> str:
        return ""

    def _met_at(self, address: str) -> str:
        return address
