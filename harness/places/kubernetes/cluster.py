"""The cluster on Kubernetes: a pod and an agent for each node, and the real Toxiproxy between them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from diloco_chaos.harness.links.client import LinkError, Links
from diloco_chaos.harness.links.probe import Sounding
from diloco_chaos.harness.places.base import ClusterError, NodeSpec, Recorder
from diloco_chaos.harness.places.incarnation import STOP_TIMEOUT_S
from diloco_chaos.harness.places.kubernetes.api import PART, Api, AwayError, KubernetesError
from diloco_chaos.harness.places.kubernetes.forward import Forward
from diloco_chaos.harness.places.kubernetes.manifests import AGENT_PORT, API_PORT, LINKS, NODES, OWNER, Manifests
from diloco_chaos.harness.places.kubernetes.settings import KubernetesSettings
from diloco_chaos.harness.places.kubernetes.undos import Namespace
from diloco_chaos.harness.places.kubernetes.watch import Watch, in_words, waits_for
from diloco_chaos.harness.places.remote import agent
from diloco_chaos.harness.places.remote.cluster import LOOK_S, RemoteCluster
from diloco_chaos.harness.places.remote.connection import Connection, GoneError
from diloco_chaos.harness.places.remote.node import Host, RemoteNode
from diloco_chaos.harness.record.undo_log import UndoLog, run_label
from diloco_chaos.harness.trainers.core.programs import Program
from diloco_chaos.harness.trainers.wire.pod_probe import Beside

_ANY, _PYTHON = "0.0.0.0", "python3"  # noqa: S104 - of a pod's own network
_LISTEN, _FIRST_LINK, _ECHO, _PROBES = 7000, 7001, 6999, 6998
_GRACE_S, _GONE_S = 2, 20.0
_HEADROOM, _HOG_S, _RESIZED_S = 12 << 20, 5, 10.0
_FILLING = ".filling"


class KubernetesCluster(RemoteCluster[KubernetesSettings]):
    """Implements `diloco_chaos.harness.places.base.Cluster`."""

    def __init__(self, run: Path, record: Recorder, undo_log: UndoLog, settings: KubernetesSettings) -> None:
        """See `SupervisedCluster`.

        Raises:
            KubernetesError: the cluster can't be used.
        """
        super().__init__(run, record, undo_log, settings)
        self._api = Api(settings.context)
        self._objects = Manifests(settings, run_label(undo_log.token), run)
        self._watch: Watch | None = None
        self._owner: Host | None = None
        self._owner_by = math.inf
        self._toxiproxy: Links | None = None
        self._times_linked = 0
        self._forwards: dict[int, Forward] = {}  # Toxiproxy's port -> ours that leads to it
        self._seen: dict[str, Forward] = {}  # node -> our port that leads to its own
        self._ports: dict[str, int] = {}  # side of a link -> Toxiproxy's port for it
        self._upstreams: dict[str, str] = {}
        self._squeezed: set[str] = set()  # pods whose memory is limited to what they use
        self._beside = Beside(undo_log.token, self._dial_newest(OWNER, _PROBES))
        self._beside_since = 0.0  # when the agent began that was asked for it

    # -- the beginning -------------------------------------------------------------------------------------------------

    def start(self, nodes: Sequence[NodeSpec]) -> None:
        """The namespace, the owner, the links, the node that others connect to, then all others."""
        self._owes = self._undo_log.record(Namespace, context=self._settings.context, run=self._objects.run,
                                           namespace=self._objects.namespace)
        self._begin()
        self._prepare_all(nodes)
        self._begin_to_serve()
        self._wait_links()
        while not self._owner_there():
            time.sleep(LOOK_S)
        self._stand_beside()
        self._start_all(nodes, "")

    def _begin(self) -> None:
        """Everything but the nodes."""
        objects, make = self._objects, partial(self._api.make, self._objects.namespace)
        if not self._settings.namespace:
            make(objects.own_namespace())
        job = self._until_allowed(lambda: make(objects.owner_job()))
        self._objects = objects = Manifests(objects.settings, objects.run, objects.folder, str(job.metadata.uid))
        for one in (objects.secret(self._undo_log.token), objects.agent(Path(agent.__file__).read_text()),
                    objects.service(NODES, {}), objects.service(LINKS, {PART: LINKS})):
            make(one)
        self._watch = Watch(self._api, objects.namespace, objects.run)
        self._watching.append(self._watch)

    def _begin_to_serve(self) -> None:
        """The links, and the pod that the run ends with."""
        objects = self._objects
        self._make_toxiproxy()
        self._api.let_go_on(objects.namespace, objects.name(OWNER))
        self._owner_by = time.monotonic() + self._settings.start_within
        self._owner = Host(OWNER, Connection(OWNER, self._run, self._undo_log.token, self._dial_newest(OWNER)))

    def _owner_there(self) -> bool:
        """Whether its agent can be asked.

        Raises:
            ClusterError: its pod will not run.
        """
        if self._owner is None or self._owner.agent.wait(LOOK_S):
            return True
        for pod in self._api.pods(self._objects.namespace, self._objects.run, OWNER):
            self._pod_must_come(pod.metadata.name, "the run's own pod", self._owner_by)
        return False

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
                time.sleep(LOOK_S)

    def _make_host(self, spec: NodeSpec, number: int) -> Host:
        manifest = self._objects.node(spec.name, number, spec.reads, "" if self._avoided else spec.machine,
                                      (spec.state, spec.disk), sorted(self._avoided),
                                      spec.program.image if spec.program else "")
        pod = manifest["metadata"]["name"]
        self._api.make(self._objects.namespace, manifest)
        dial = partial(self._api.dial, self._objects.namespace, pod, AGENT_PORT)
        return Host(pod, Connection(spec.name, self._run, self._undo_log.token, dial))

    def _give_up(self, host: Host) -> None:
        self._api.delete_pod(self._objects.namespace, host.name)

    def _must_come(self, host: Host, what: str, until: float) -> None:
        self._pod_must_come(host.name, what, until)

    def _lost(self, host: Host) -> str:
        return self._watch.lost.get(host.name, "") if self._watch is not None else ""

    def _machine(self, host: Host) -> str:
        return self._watch.machines.get(host.name, "") if self._watch is not None else ""

    def _pod_must_come(self, pod: str, what: str, until: float) -> None:
        """Raises where a pod will not run, or was waited for until then."""
        assert self._watch is not None, "the cluster was started"
        hopeless = self._watch.hopeless.get(pod, "")
        if hopeless or time.monotonic() > until:
            found = [one for one in self._api.pods(self._objects.namespace, self._objects.run)
                     if one.metadata.name == pod]
            why = hopeless or (in_words(waits_for(found[0])) if found else "it is gone")
            raise ClusterError(f"{what}: its pod does not run" + ("" if hopeless else f" within "
                               f"{self._settings.start_within:g} s") + f": {why or 'Kubernetes does not say why'}")

    def _answers(self) -> bool:
        return self._api.answers()

    def _node(self, spec: NodeSpec, number: int, host: Host) -> RemoteNode:
        return RemoteNode(spec, number, self._undo_log, host, self._start, partial(self._set_processors, host.name))

    def _start(self, node: RemoteNode) -> None:
        if (program := node.spec.program) is not None:
            started = self._started(node.spec, program, node.incarnation)
            node.agent.ask("spawn", name=node.process, argv=started.argv, env=started.env, cwd=started.cwd)
            return
        node.ahead = node.host.clock.best(time.monotonic()).ahead
        argv = node.spec.command(node.incarnation, python=_PYTHON, host=_ANY, listen=_LISTEN,
                                 connect=self._addresses.get(node.name, ""), ahead=node.ahead)
        node.agent.ask("spawn", name=node.process, argv=argv)

    # -- what goes on --------------------------------------------------------------------------------------------------

    def poll(self) -> None:
        """And have the owner's pod answer and ask for us."""
        super().poll()
        self._stand_beside()

    def _stand_beside(self) -> None:
        """Have the owner's pod, which has our image, answer and ask for us; and again where it is another one."""
        if self._owner is not None and self._owner.agent.began != self._beside_since:
            self._beside_since = self._owner.agent.began
            argv = ["python3", "-m", "diloco_chaos.harness.trainers.wire.pod_probe", str(_ECHO), str(_PROBES)]
            self._owner.agent.soon("spawn", name=f"{OWNER}.0", argv=argv)

    def _all_hosts(self) -> list[Host]:
        return [*super()._all_hosts(), *([self._owner] if self._owner else [])]

    # -- what processes do not have ------------------------------------------------------------------------------------

    def _set_processors(self, pod: str, processors: float | None) -> None:
        resources = self._objects.resources(processors=processors)
        self._api.resize(self._objects.namespace, pod, resources)

    def exhaust_memory(self, node: str, restart_after: float | None) -> None:
        """A limit just above what it uses, and a second process that asks for more: the kernel kills the largest."""
        current = self._nodes[node]
        if not current.alive or current.host.lost:
            return
        current.expected_exit, current.restart_after = True, restart_after
        self._squeezed.add(current.host.name)
        current.host.soon(lambda: self._squeeze(current))

    def _squeeze(self, node: RemoteNode) -> None:
        with suppress(GoneError):  # it has ended meanwhile: nothing is taken from it
            self._take_memory(node)

    def _take_memory(self, node: RemoteNode) -> None:
        stat = node.agent.ask("stat", name=node.process)
        limit = int(stat["used"]) + _HEADROOM
        self._api.resize(self._objects.namespace, node.host.name, self._objects.resources(memory=limit))
        until = time.monotonic() + _RESIZED_S
        while int(node.agent.ask("stat", name=node.process)["limit"]) > limit:
            if time.monotonic() > until:
                raise KubernetesError(f"the memory of {node.host.name} was not limited within {_RESIZED_S:g} s: can "
                                      f"this Kubernetes resize pods in place (1.33 and newer)?")
            time.sleep(LOOK_S)
        node.agent.ask("expose", name=node.process)
        size = limit - int(stat["memory"]) + 4 * _HEADROOM  # more than is left when the kernel keeps no file any more
        hog = f"import time; b = b'x' * {size}; time.sleep({_HOG_S})"
        node.agent.ask("spawn", name=f"{node.process}.hog", argv=["python3", "-c", hog])

    def _gone(self, node: RemoteNode, status: int) -> None:
        if node.host.name in self._squeezed:
            self._squeezed.discard(node.host.name)
            node.host.soon(lambda: self._api.resize(self._objects.namespace, node.host.name, self._objects.resources()))
        super()._gone(node, status)

    def fill_disk(self, node: str, restart_after: float) -> int:
        """Write zeros until there is no space."""
        self._expect_no_space(node, restart_after)
        return int(self._hosts[node].agent.ask("fill", path=self._filling(node))["filled"])

    def empty_disk(self, node: str) -> None:
        """Remove them."""
        with suppress(GoneError):
            self._hosts[node].agent.ask("remove", path=self._filling(node))
        self._disk_full.pop(node, None)
        if self._nodes[node].alive:
            self._nodes[node].clear_expected_exit()

    def _filling(self, node: str) -> str:
        return f"{self._nodes[node].spec.state}/{_FILLING}"

    def restart_links(self) -> float:
        """Toxiproxy's pod is deleted, and the next one gets its links and their toxics again."""
        began = time.monotonic()
        with self._linking:
            for pod in self._api.pods(self._objects.namespace, self._objects.run, LINKS):
                self._api.delete_pod(self._objects.namespace, pod.metadata.name)
            self._make_toxiproxy()
            self._wait_links()
            for side in self._ports:
                self._make(side)
                for toxic in self._toxics.get(side, {}).values():
                    self._links().add(side, toxic)
        return time.monotonic() - began

    def delete_pod(self, node: str, restart_after: float | None, *, evict: bool = False) -> None:
        """See `diloco_chaos.harness.places.base.Pods`."""
        current = self._nodes[node]
        if not current.alive or current.host.lost:
            return
        current.expected_exit, current.restart_after = True, restart_after
        current.host.leaving = True
        if evict:
            self._api.evict_pod(self._objects.namespace, current.host.name)
        else:
            self._api.delete_pod(self._objects.namespace, current.host.name, grace=_GRACE_S)

    def drain(self, node: str, restart_after: float | None) -> None:
        """Nothing is done to the machine, nor to anybody else's pods on it: it need not be anybody's own."""
        machine = self._machine_of(node)
        self._avoided.add(machine)
        for name in self._on(machine):
            self.delete_pod(name, restart_after, evict=True)

    # -- state ---------------------------------------------------------------------------------------------------------

    def state_files(self, node: str) -> dict[str, int]:
        """Without what a fault has put there."""
        return {name: size for name, size in super().state_files(node).items() if name != _FILLING}

    # -- links ---------------------------------------------------------------------------------------------------------

    def _proxy(self, side: str, upstream: str) -> str:
        self._ports[side], self._upstreams[side] = _FIRST_LINK + len(self._ports), upstream
        self._make(side)
        return f"{self._objects.name(LINKS)}:{self._ports[side]}"

    def _make(self, side: str) -> None:
        self._links().create(side, self._upstreams[side], listen=f"{_ANY}:{self._ports[side]}",
                             enabled=side not in self._disabled)

    def _asked_at(self, address: str) -> str:
        return self._forward(int(address.rpartition(":")[2])).address

    def ask(self, link: str, reply_bytes: int, send_bytes: int, watch_close: bool) -> Sounding:
        """By the owner's pod: on the way from here a connection's end looks the same however it came."""
        try:
            return self._beside.ask(self._echoes.get(link) or self._addresses[link], reply_bytes=reply_bytes,
                                    send_bytes=send_bytes, watch_close=watch_close)
        except (OSError, ValueError) as error:
            raise KubernetesError(f"{link} can't be measured: {error}") from error

    def _forward(self, port: int) -> Forward:
        if port not in self._forwards:
            self._forwards[port] = Forward(self._dial_newest(LINKS, port))
        return self._forwards[port]

    def _links(self) -> Links:
        if self._toxiproxy is None:
            raise ClusterError("the links are not up yet")
        return self._toxiproxy

    def _make_toxiproxy(self) -> None:
        self._api.make(self._objects.namespace, self._objects.links(self._times_linked))
        self._times_linked += 1

    def _wait_links(self) -> None:
        links, until = Links(self._forward(API_PORT).address), time.monotonic() + self._settings.start_within
        while True:
            try:
                links.version()
                break
            except LinkError:
                for pod in self._api.pods(self._objects.namespace, self._objects.run, LINKS):
                    self._pod_must_come(pod.metadata.name, "Toxiproxy", until)
                time.sleep(LOOK_S)
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
        """And everything is removed. Where the API server does not answer, that stays owed."""
        self._end_nodes()
        self._beside.close()
        for host in self._all_hosts():
            host.close()
        for forward in (*self._forwards.values(), *self._seen.values()):
            forward.close()
        self._leave_nothing()
        self._api.close()

    def _remove_everything(self) -> None:
        self._api.remove(self._objects.namespace, self._objects.run)
        if left := self._api.wait_removed(self._objects.namespace, self._objects.run, _GONE_S):
            raise KubernetesError(f"not removed yet: {', '.join(left)}")

    # -- nodes that are commands ---------------------------------------------------------------------------------------

    def _port_for(self, spec: NodeSpec, program: Program) -> int:
        return program.port or _LISTEN

    def _found_at(self, node: str) -> str:
        return f"{node}.{self._objects.name(NODES)}"

    def _seen_at(self, node: str) -> tuple[str, int]:
        if node not in self._seen:
            dial = partial(self._api.dial, self._objects.namespace, self._hosts[node].name, self._listens[node])
            self._seen[node] = Forward(dial)
        host, _, port = self._seen[node].address.rpartition(":")
        return host, int(port)

    def _begin_echo(self, host: str) -> str:
        """In the owner's pod: the link server finds nothing of the harness' machine."""
        return f"{OWNER}.{self._objects.name(NODES)}:{_ECHO}"

    def _place(self) -> dict[str, str]:
        return {"python": _PYTHON, "host": _ANY}

    def _link_server(self) -> int:
        return 0
