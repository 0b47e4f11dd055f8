"""The cluster under virtual time: one process, thousands of times as fast as a clock, and the same every time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from operator import or_
from pathlib import Path

from diloco_chaos.harness.links.probe import PROBE_TIMEOUT_S, Sounding
from diloco_chaos.harness.places.base import ClusterError, NodeSpec, Recorder
from diloco_chaos.harness.places.simulated.incarnation import SimulatedIncarnation
from diloco_chaos.harness.places.supervised import SupervisedCluster
from diloco_chaos.harness.record.storage.disk import Content
from diloco_chaos.harness.record.tape.events import Spawn
from diloco_chaos.harness.record.undo_log import UndoLog
from diloco_chaos.harness.simulation.client import SimulatedClient
from diloco_chaos.harness.simulation.disk import MemoryDisk
from diloco_chaos.harness.simulation.flow import passage
from diloco_chaos.harness.simulation.host import SimulatedHost
from diloco_chaos.harness.simulation.impostor import SimulatedImpostor
from diloco_chaos.harness.simulation.network import Link, Network
from diloco_chaos.harness.simulation.process import SimulatedProcess
from diloco_chaos.harness.simulation.server import SimulatedServer
from diloco_chaos.harness.trainers.api.trainer import Workload
from diloco_chaos.harness.trainers.core.memory import Corruption
from diloco_chaos.harness.trainers.core.roles import Coordinator
from diloco_chaos.harness.trainers.node.failpoints import Failpoints
from diloco_chaos.harness.trainers.node.process import holds
from diloco_chaos.harness.trainers.storage import global_checkpoint
from diloco_chaos.harness.trainers.wire.impostor import Impostor

_QUESTION_BYTES = 120
_LINKS_RESTART_S = 0.9


class SimulatedCluster(SupervisedCluster[SimulatedIncarnation]):
    """Implements `diloco_chaos.harness.places.base.Cluster`."""

    def __init__(self, around: SimulatedHost, workload: Workload, record: Recorder, undo_log: UndoLog,
                 parts: Mapping[str, Content] | None = None) -> None:
        """`parts`: of the checkpoint that the run goes on from."""
        self._around, self._workload = around, workload
        self._parts = dict(parts or {})
        self._failpoints: dict[str, list[Failpoints]] = {}  # node -> of each of its processes
        self._world = around.world
        super().__init__(Path("simulated"), record, undo_log, lambda: self._world.now)
        self._disks: dict[str, MemoryDisk] = {}
        self._network = Network(self._world, around.parameters)
        self._coming: list[Link] = []  # links that are restarted

    @property
    def next_at(self) -> float:
        """When there is something for `poll` that nothing announces."""
        return min((node.next_at for node in self._everyone()), default=float("inf"))

    def start(self, nodes: Sequence[NodeSpec]) -> None:
        """Those that listen first; they are waited for."""
        for spec in (node for node in nodes if node.listens):
            self._spawn(spec, spec.incarnation)
            self._await_listening(spec.name)
        for spec in (node for node in nodes if not node.listens):
            self.join(spec)

    def join(self, node: NodeSpec) -> None:
        """Make the link, start the node."""
        self._network.create(node.name)
        self._addresses[node.name] = node.name
        self._spawn(node, node.incarnation)

    def stop(self) -> None:
        """Nothing is left."""

    def dump_stacks(self) -> None:
        """There is one stack only, and it is this one."""

    # -- what containers have, too -------------------------------------------------------------------------------------

    def exhaust_memory(self, node: str, restart_after: float | None) -> None:
        """SIGKILL, and it is said why."""
        self._nodes[node].oom = True
        self.kill(node, restart_after)

    def disconnect(self, node: str, off: bool) -> None:
        """Packets of all its links are lost."""
        for link in self.links_of(node):
            self._network.links[link].vanish(off)

    def fill_disk(self, node: str, restart_after: float) -> int:
        """Nothing more can be written."""
        disk = self._disks[node]
        self._expect_no_space(node, restart_after)
        disk.full = True
        return sum(len(disk.data(name)) for name in disk.names())

    def empty_disk(self, node: str) -> None:
        """There is room again."""
        if self._disks[node].full:
            self._disks[node].full = False
            self._disk_full.pop(node, None)
            self._nodes[node].clear_expected_exit()

    def restart_links(self) -> float:
        """All connections break, and new ones are refused for a while."""
        for link in self._network.links.values():
            if link.enabled:
                link.enable(False)
                self._coming.append(link)
                self._world.after(_LINKS_RESTART_S, self._link_is_back, link)
        return _LINKS_RESTART_S

    def _link_is_back(self, link: Link) -> None:
        if link in self._coming:
            self._coming.remove(link)
            if link.name not in self._disabled:
                link.enable(True)

    def residue(self) -> list[str]:
        """Links that are about to be there again are: elsewhere a restart is over only then."""
        for link in list(self._coming):
            self._link_is_back(link)
        sharing = [link.name for link in self._network.links.values() if link.shares]
        return super().residue() + [f"{link} shares a rate" for link in sharing]

    def corrupt_memory(self, node: str, corruption: Corruption) -> None:
        """The simulated process does it itself."""
        process = self._nodes[node].process
        assert isinstance(process, SimulatedClient), "only learners train"
        process.corruptions.append(corruption)

    # -- what only a simulation has ------------------------------------------------------------------------------------

    def lose_power(self, node: str, restart_after: float | None) -> None:
        """SIGKILL, and only what was synced is left."""
        self.kill(node, restart_after)
        if node in self._disks:
            self._disks[node].lose_power()

    def jump_clock(self, node: str, seconds: float) -> None:
        """Its clock goes forward."""
        if self._nodes[node].alive:
            self._nodes[node].process.jump(seconds)

    def share_links(self, links: Sequence[str], rate: float | None, streams: Sequence[str]) -> None:
        """As if they all went through one."""
        self._network.share(links, rate, streams)

    # -- state ---------------------------------------------------------------------------------------------------------

    def state_files(self, node: str) -> dict[str, int]:
        """What is on its disk."""
        disk = self._disk_of(node)
        return {name: len(disk.data(name)) for name in disk.names()}

    def tape_size(self, node: str) -> int:
        """None: the tape lies on no simulated disk, and no limit concerns it."""
        return 0

    def alter(self, node: str, name: str, change: Callable[[bytes], bytes | None]) -> None:
        """Rewrite or remove a file."""
        disk = self._disk_of(node)
        disk.alter(name, change(disk.data(name)))

    def _disk_of(self, node: str) -> MemoryDisk:
        if node not in self._disks:
            raise ClusterError(f"{node} keeps no state")
        return self._disks[node]

    # -- processes -----------------------------------------------------------------------------------------------------

    def _links(self) -> Network:
        return self._network

    def _last_lines(self, name: str, incarnation: int, count: int = 12) -> str:
        return "  (a simulated node has no log)"

    def _spawn(self, spec: NodeSpec, number: int) -> None:
        self._nodes[spec.name] = node = self._incarnation(spec, number)
        self._record(Spawn(target=spec.name, incarnation=number, pid=node.pid))

    def _incarnation(self, spec: NodeSpec, number: int) -> SimulatedIncarnation:
        part = global_checkpoint.own(self._parts.get(spec.name), number)
        earlier = self._failpoints.setdefault(spec.name, [])
        before: Counter[str] = reduce(or_, (points.passed for points in earlier), Counter())
        earlier.append(points := Failpoints(holds(spec.failpoints), part, before))
        process: SimulatedProcess
        if spec.listens:
            disk = self._disks.setdefault(spec.name, MemoryDisk())
            process = SimulatedServer(self._around, spec.name, number, points, disk,
                                      lambda: self._syncer_core(spec.name, disk, number))
        else:
            process = SimulatedClient(
                self._around, spec.name, number, points, self._network.links[spec.name],
                lambda: self._server(spec.connects_to),
                lambda: self._workload.worker(spec.name, number, self._undo_log.token, part))
        return SimulatedIncarnation(spec, number, self._undo_log, process)

    def _syncer_core(self, name: str, disk: MemoryDisk, number: int) -> Coordinator:
        if (part := self._parts.pop(name, None)) is not None:  # once: what is lost later must not be made good by it
            self._workload.put_back(part, disk)
        return self._workload.coordinator(disk, number)

    def _server(self, name: str) -> SimulatedServer:
        process = self._nodes[name].process
        assert isinstance(process, SimulatedServer), "others connect to it"
        return process

    def _await_listening(self, name: str) -> None:
        server = self._server(name)
        while not server.listening:
            if server.status is not None:
                raise ClusterError(f"{name} did not start")
            self._world.run(self._world.now + self._around.parameters.tick)

    # -- probes and impostors ------------------------------------------------------------------------------------------

    def sound(self, link: str, reply_bytes: int, send_bytes: int, watch_close: bool) -> Sounding:
        """What a probe through a link would measure now."""
        way = self._network.links[link]
        server = self._server(self._nodes[link].spec.connects_to)
        if not way.enabled:
            return Sounding("refused")
        if way.vanished:
            return Sounding("silent")
        up, down = way.paces()
        base = self._around.parameters.delay
        spent, received = base, 0
        for pace, size in ((up, _QUESTION_BYTES + send_bytes), (down, _QUESTION_BYTES // 2 + reply_bytes)):
            if pace is down and not server.listening:
                return Sounding("closed", spent)
            if pace is down and server.frozen:
                return Sounding("silent", PROBE_TIMEOUT_S)
            took, passed, end = passage(pace, size, self._world.now)
            took += way.shared_s("downstream" if pace is down else "upstream", passed)
            received = passed if pace is down else 0
            if end == "silent" or (end != "answered" and took > PROBE_TIMEOUT_S):
                return Sounding("silent", PROBE_TIMEOUT_S, received)
            spent += took + base / 2
            if end != "answered":
                return Sounding(end, spent, received)
        closing = up.end_delay_s + down.end_delay_s + base if watch_close else None
        return Sounding("answered", spent, received, closing)

    def impostor(self, learner: str, rogue: Impostor, count: int, timeout_s: float,
                 done: Callable[[int], None]) -> None:
        """Let somebody take a learner's place until so many contributions were taken, or the time is over."""
        SimulatedImpostor(self._around, self._network.links[learner],
                  lambda: self._server(self._nodes[learner].spec.connects_to), rogue, count,
                  self._world.now + timeout_s, done)
