"""The cluster on Kubernetes: a pod and an agent for each node, and the real Toxiproxy between them.

A node's incarnations follow each other in the same pod, as containers of a pod do that Kubernetes restarts: what it
has on its disk stays. Where the pod is gone, the next incarnation gets a new one, with an empty disk.
"""

from __future__ import annotations

import math
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from harness import memory
from harness.cleanup.commands import carried_out
from harness.cleanup.undo_log import Command as Undoing
from harness.cleanup.undo_log import Namespace, UndoLog, run_label
from harness.cluster.base import ClusterError, NodeSpec, Recorder
from harness.cluster.commanded import CommandCluster
from harness.cluster.incarnation import STOP_TIMEOUT_S
from harness.cluster.kubernetes.api import PART, Api, AwayError, KubernetesError
from harness.cluster.kubernetes.forward import Forward
from harness.cluster.kubernetes.manifests import AGENT_PORT, API_PORT, LINKS, NODES, OWNER, Manifests
from harness.cluster.kubernetes.settings import BACK, Command, KubernetesSettings
from harness.cluster.kubernetes.watch import Watch, waits_for
from harness.cluster.remote import agent
from harness.cluster.remote.clocks import Comparing
from harness.cluster.remote.connection import Connection, GoneError
from harness.cluster.remote.machines import Look, Machines
from harness.cluster.remote.node import Host, RemoteNode
from harness.core.programs import PROGRESS, STEADY, Program
from harness.links.client import LinkError, Links
from harness.links.probe import Sounding
from harness.machine import Sample
from harness.memory import Corruption
from harness.wire.beside import Beside

_LISTEN, _FIRST_LINK, _ECHO, _PROBES = 7000, 7001, 6999, 6998
_ANY = "0.0.0.0"  # noqa: S104 - of a pod's own network
_LOOK_S = 0.1
_CLOCK_READINGS, _LOOK_ANSWERS_S, _CLOCKS_S = 8, 2.0, 2.0
_AGAIN_S, _GRACE_S, _COMMAND_S, _GONE_S = 1.0, 2, 30.0, 20.0
_HEADROOM, _HOG_S, _RESIZED_S = 12 << 20, 5, 10.0
_FILLING = ".filling"
_SETTINGS = "cluster.json"


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
        self._objects = Manifests(settings, run_label(undo_log.token), run)
        self._owes: int | None = None
        self._watch: Watch | None = None
        self._hosts: dict[str, Host] = {}
        self._owner: Host | None = None
        self._owner_by = math.inf
        self._toxiproxy: Links | None = None
        self._forwards: dict[int, Forward] = {}  # Toxiproxy's port -> ours that leads to it
        self._seen: dict[str, Forward] = {}  # node -> our port that leads to its own
        self._ports: dict[str, int] = {}  # side of a link -> Toxiproxy's port for it
        self._upstreams: dict[str, str] = {}
        self._comparing: Comparing | None = None
        self._machines = Machines()
        self._avoided: set[str] = set()  # machines
        self._squeezed: set[str] = set()  # pods whose memory is limited to what they use
        self._owed_commands: list[tuple[str, list[str], int]] = []  # what was done, what undoes it, its number
        self._clocks_at = 0.0
        self._steady_told = False
        self._beside = Beside(undo_log.token, self._dial_newest(OWNER, _PROBES))
        self._beside_since = 0.0  # when the agent began that was asked for it

    # -- the beginning -------------------------------------------------------------------------------------------------

    def start(self, nodes: Sequence[NodeSpec]) -> None:
        """The namespace, the owner, the links, the node that others connect to, then all others."""
        self._owes = self._undo_log.record(Namespace, context=self._settings.context, run=self._objects.run,
                                           namespace=self._objects.namespace)
        self._begin()
        for spec in sorted(nodes, key=lambda spec: not spec.machine):  # first who wants a machine of its own
            self._make_pod(spec, spec.incarnation)
            if spec.machine:
                self._wait_placed(spec.name)
        self._begin_to_serve()
        self._wait_links()
        while not self._owner_there():
            time.sleep(_LOOK_S)
        self._stand_beside()
        if any(spec.program for spec in nodes):
            self._start_commands(nodes, "")
        else:
            self._start_nodes(nodes)
        for spec in nodes:
            self._nodes[spec.name].wait_started(self._settings.start_within)
        self._comparing = Comparing(self._looks)

    def _start_nodes(self, nodes: Sequence[NodeSpec]) -> None:
        """Those of ours: who others connect to first."""
        for spec in (node for node in nodes if node.listens):
            self._spawn(spec, spec.incarnation)
            self._nodes[spec.name].wait_started(self._settings.start_within)
            self._listening_port(spec.name)
        for spec in (node for node in nodes if not node.listens):
            self._link(spec)
            self._spawn(spec, spec.incarnation)

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
                    objects.service(NODES, {}), objects.service(LINKS, {PART: LINKS})):
            make(one)
        self._watch = Watch(self._api, objects.namespace, objects.run)

    def _begin_to_serve(self) -> None:
        """The links, and the pod that the run ends with."""
        objects = self._objects
        self._api.make(objects.namespace, objects.links())
        self._api.let_go_on(objects.namespace, objects.name(OWNER))
        self._owner_by = time.monotonic() + self._settings.start_within
        self._owner = Host(OWNER, Connection(OWNER, self._run, self._undo_log.token, self._dial_newest(OWNER)))

    def _owner_there(self) -> bool:
        """Whether its agent can be asked.

        Raises:
            ClusterError: its pod will not run.
        """
        if self._owner is None or self._owner.agent.wait(_LOOK_S):
            return True
        for pod in self._api.pods(self._objects.namespace, self._objects.run, OWNER):
            self._must_come(pod.metadata.name, "the run's own pod", self._owner_by)
        return False

    def _wait_placed(self, node: str) -> None:
        """Until it is known which machine a node's pod is on: the others are put elsewhere."""
        assert self._watch is not None, "the cluster was started"
        pod, until = self._hosts[node].name, time.monotonic() + self._settings.start_within
        while not self._watch.machines.get(pod):
            self._must_come(pod, node, until)
            time.sleep(_LOOK_S)

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
        manifest = self._objects.node(spec.name, number, spec.reads, "" if self._avoided else spec.machine,
                                      (spec.state, spec.disk), sorted(self._avoided),
                                      spec.program.image if spec.program else "")
        pod = manifest["metadata"]["name"]
        self._api.make(self._objects.namespace, manifest)
        dial = partial(self._api.dial, self._objects.namespace, pod, AGENT_PORT)
        host = Host(pod, Connection(spec.name, self._run, self._undo_log.token, dial))
        before, self._hosts[spec.name] = self._hosts.get(spec.name), host
        host.soon(lambda: self._provide(host, spec))
        if before is not None:
            before.close()
            with suppress(AwayError):  # else it goes with everything else
                self._api.delete_pod(self._objects.namespace, before.name)

    def _provide(self, host: Host, spec: NodeSpec) -> None:
        """Wait for its agent, give it the files that the node needs, and compare clocks."""
        until = time.monotonic() + self._settings.start_within
        while not host.agent.wait(_LOOK_S):
            if host.lost:
                raise ClusterError(f"{spec.name}: {host.lost}")
            self._must_come(host.name, spec.name, until)
        needed = {} if spec.program else {_SETTINGS: self._run / _SETTINGS, **{str(path): path for path in spec.reads}}
        for name, path in needed.items():
            host.agent.ask("put", path.read_bytes(), path=name, within=self._settings.start_within)
        for _ in range(_CLOCK_READINGS):
            host.look(_LOOK_ANSWERS_S)

    def _must_come(self, pod: str, what: str, until: float) -> None:
        """Raises where a pod will not run, or was waited for until then."""
        assert self._watch is not None, "the cluster was started"
        hopeless = self._watch.hopeless.get(pod, "")
        if hopeless or time.monotonic() > until:
            found = [one for one in self._api.pods(self._objects.namespace, self._objects.run)
                     if one.metadata.name == pod]
            why = hopeless or (": ".join(filter(None, waits_for(found[0]))) if found else "it is gone")
            raise ClusterError(f"{what}: its pod does not run" + ("" if hopeless else f" within "
                               f"{self._settings.start_within:g} s") + f": {why or 'Kubernetes does not say why'}")

    def _spawn(self, spec: NodeSpec, number: int) -> None:
        if self._hosts[spec.name].lost or self._hosts[spec.name].leaving:
            try:
                self._make_pod(spec, number)
            except AwayError:
                self._nodes[spec.name].restart_at = self._clock() + _AGAIN_S
                return
        host = self._hosts[spec.name]
        self._nodes[spec.name] = RemoteNode(spec, number, self._undo_log, host, self._start,
                                            partial(self._set_processors, host.name))
        self._record("spawn", target=spec.name, incarnation=number, pod=self._hosts[spec.name].name)

    def _start(self, node: RemoteNode) -> None:
        """Have a node's agent start an incarnation; called in the host's thread."""
        if (program := node.spec.program) is not None:
            started = self._started(node.spec, program, node.incarnation)
            node.agent.ask("spawn", name=node.process, argv=started.argv, env=started.env, cwd=started.cwd)
            return
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
                if host.failure is not None and not (host.lost or host.leaving):
                    raise host.failure
        if self._comparing is not None and self._comparing.failure is not None:
            raise self._comparing.failure
        super().poll()
        self._stand_beside()
        self._tell_of_steady_state()
        now = time.monotonic()
        if now >= self._clocks_at:
            self._clocks_at = now + _CLOCKS_S
            self._record_clocks(now)

    def _stand_beside(self) -> None:
        """Have the owner's pod, which has our image, answer and ask for us; and again where it is another one."""
        if self._owner is not None and self._owner.agent.began != self._beside_since:
            self._beside_since = self._owner.agent.began
            argv = ["python3", "-m", "harness.wire.beside", str(_ECHO), str(_PROBES)]
            self._owner.agent.soon("spawn", name=f"{OWNER}.0", argv=argv)

    def _tell_of_steady_state(self) -> None:
        """Commands that hold at points of their own count from then on; they see it by a file."""
        steady = self._run / PROGRESS / STEADY
        if self._steady_told or not steady.exists():
            return
        self._steady_told = True
        for host in self._hosts.values():
            host.agent.soon("put", path=f"{PROGRESS}/{STEADY}")

    def _record_clocks(self, now: float) -> None:
        for node in self._everyone():
            if node.alive and node.ahead is not None:
                best = node.host.clock.best(now)
                self._record("clock", target=node.name, incarnation=node.incarnation,
                             ahead=round(best.ahead - node.ahead, 6), error=round(best.error, 6))

    def _looks(self) -> list[Callable[[], None]]:
        return [partial(host.look, _LOOK_ANSWERS_S) for host in self._all_hosts() if host.agent.connected]

    def _all_hosts(self) -> list[Host]:
        """The nodes', and the run's own."""
        return [*self._hosts.values(), *([self._owner] if self._owner else [])]

    def machines(self, here: Sample) -> list[dict[str, float | str]]:
        """See `harness.cluster.base.Watched`."""
        hosts = self._all_hosts()
        looks = [Look(host.name, host.agent.boot, float(told["at"]), float(told["used"]), told["machine"])
                 for host in hosts if (told := host.told) and not host.lost]
        names = {host.agent.boot: self._watch.machines.get(host.name, "") for host in hosts if self._watch is not None}
        boot = agent.boot()
        return [{**sample.fields(), "machine": "harness" if which == boot else names.get(which, "")}
                for which, sample in self._machines.samples(looks, boot, here).items()]

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
            time.sleep(_LOOK_S)
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
            self._wait_links()
            for side in self._ports:
                self._make(side)
                for toxic in self._toxics.get(side, {}).values():
                    self._links().add(side, toxic)
        return time.monotonic() - began

    def delete_pod(self, node: str, restart_after: float | None, *, evict: bool = False) -> None:
        """See `harness.cluster.base.Pods`."""
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

    def lose_machine(self, node: str, restart_after: float | None) -> None:
        """By the user's command; at the end of the run the other one brings it back."""
        machine = self._machine_of(node)
        there = self._on(machine)
        self._command("node_power_loss", machine)
        for name in there:
            current = self._nodes[name]
            current.expected_exit, current.restart_after = True, restart_after
            current.host.lost = f"{machine}, which it was on, has lost its power"
        self._avoided.add(machine)

    def part_machine(self, node: str, off: bool) -> None:
        """By the user's commands."""
        if off:
            self._command("node_partition", self._machine_of(node))
        else:
            self._undo_commands("node_partition")

    def restart_control_plane(self) -> None:
        """In a session of its own: it must not end with us."""
        subprocess.Popen(self._settings.command("restart_control_plane"), stdin=subprocess.DEVNULL,
                         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)

    def control_plane_away(self, within: float) -> float:
        """See `harness.cluster.base.ControlPlane`."""
        until, gone = time.monotonic() + within, None
        while time.monotonic() < until:
            there = self._api.answers()
            if gone is None and not there:
                gone = time.monotonic()
            if gone is not None and there:
                return time.monotonic() - gone
            time.sleep(_LOOK_S)
        return 0.0

    def _machine_of(self, node: str) -> str:
        machine = self._watch.machines.get(self._hosts[node].name, "") if self._watch is not None else ""
        if not machine:
            raise KubernetesError(f"nobody knows which machine {node}'s pod is on")
        return machine

    def _on(self, machine: str) -> list[str]:
        """The nodes whose pods are on a machine."""
        assert self._watch is not None, "the cluster was started"
        return [name for name, host in self._hosts.items()
                if self._watch.machines.get(host.name) == machine and not host.lost]

    def _command(self, what: Command, machine: str) -> None:
        """Do what only the user can; what undoes it is written down before."""
        back = self._settings.command(BACK[what], machine)
        self._owed_commands.append((what, back, self._undo_log.record(Undoing, argv=back)))
        _run(self._settings.command(what, machine))

    def _undo_commands(self, what: str = "") -> None:
        """Undo all of that, or all of one kind."""
        for owed in [one for one in self._owed_commands if not what or one[0] == what]:
            _run(owed[1])
            self._undo_log.complete(owed[2])
            self._owed_commands.remove(owed)

    # -- state ---------------------------------------------------------------------------------------------------------

    def state_files(self, node: str) -> dict[str, int]:
        """As its agent sees them."""
        files = self._hosts[node].agent.ask("list", path=self._nodes[node].spec.state)["files"]
        return {str(name): int(size) for name, size in files.items() if name != _FILLING}

    def alter(self, node: str, name: str, change: Callable[[bytes], bytes | None]) -> None:
        """Through its agent."""
        host, path = self._hosts[node].agent, f"{self._nodes[node].spec.state}/{name}"
        changed = change(host.fetch("get", path=path)[1])
        if changed is None:
            host.ask("remove", path=path)
        else:
            host.ask("put", changed, path=path)

    def corrupt_memory(self, node: str, corruption: Corruption) -> None:
        """An order, which its agent puts into the run's folder there."""
        name, content = memory.written(node, self._nodes[node].incarnation, corruption)
        self._hosts[node].agent.ask("put", content, path=name)

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

    def _wait_links(self) -> None:
        links, until = Links(self._forward(API_PORT).address), time.monotonic() + self._settings.start_within
        while True:
            try:
                links.version()
                break
            except LinkError:
                for pod in self._api.pods(self._objects.namespace, self._objects.run, LINKS):
                    self._must_come(pod.metadata.name, "Toxiproxy", until)
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
        self._beside.close()
        if self._comparing is not None:
            self._comparing.close()
        if self._watch is not None:
            self._watch.close()
        for host in self._all_hosts():
            host.close()
        for forward in (*self._forwards.values(), *self._seen.values()):
            forward.close()
        if self._owes is not None:
            try:
                self._undo_commands()
                self._api.remove(self._objects.namespace, self._objects.run)
                if left := self._api.wait_removed(self._objects.namespace, self._objects.run, _GONE_S):
                    raise KubernetesError(f"not removed yet: {', '.join(left)}")
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
        return {"python": "python3", "host": _ANY}

    def _link_server(self) -> int:
        return 0

    def _listener(self, host: str, port: int) -> str:
        return ""

    def _met_at(self, address: str) -> str:
        return address


def _run(argv: Sequence[str]) -> None:
    """A command of the user's, to its end.

    Raises:
        KubernetesError: it fails.
    """
    try:
        carried_out(argv, _COMMAND_S)
    except OSError as error:
        raise KubernetesError(f"{' '.join(argv)}: {error}") from error
