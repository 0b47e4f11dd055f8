"""A run under virtual time: one process, thousands of times as fast as a clock, and the same every time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from operator import or_
from pathlib import Path

from diloco_chaos.harness.links.probe import Sounding
from diloco_chaos.harness.places.base import ClusterError, NodeSpec, Recorder
from diloco_chaos.harness.places.links.run_links import RunLinks
from diloco_chaos.harness.places.nodes.nodes import Nodes
from diloco_chaos.harness.places.simulated.disks import SimulatedDisks
from diloco_chaos.harness.places.simulated.links import NetworkFaults, SimulatedLinks, sounding
from diloco_chaos.harness.places.simulated.machines import SimulatedMachines
from diloco_chaos.harness.places.simulated.process import VirtualProcess
from diloco_chaos.harness.places.simulated.threads import SimulatedThreads
from diloco_chaos.harness.places.site import Site
from diloco_chaos.harness.record.storage.disk import Content
from diloco_chaos.harness.record.undo_log import UndoLog
from diloco_chaos.harness.simulation.client import SimulatedClient
from diloco_chaos.harness.simulation.disk import MemoryDisk
from diloco_chaos.harness.simulation.host import SimulatedHost
from diloco_chaos.harness.simulation.impostor import SimulatedImpostor
from diloco_chaos.harness.simulation.network import SimulatedNetwork
from diloco_chaos.harness.simulation.server import SimulatedServer
from diloco_chaos.harness.trainers.api.trainer import Workload
from diloco_chaos.harness.trainers.core.roles import Coordinator
from diloco_chaos.harness.trainers.node.failpoints import Failpoints
from diloco_chaos.harness.trainers.node.process import holds
from diloco_chaos.harness.trainers.storage import global_checkpoint
from diloco_chaos.harness.trainers.wire.impostor import Impostor


class SimulatedSite(Site):
    """See the module."""

    nodes: Nodes[VirtualProcess]

    def __init__(self, around: SimulatedHost, workload: Workload, record: Recorder, undo_log: UndoLog,
                 parts: Mapping[str, Content] | None = None) -> None:
        """`parts`: of the checkpoint that the run goes on from."""
        self._around, self._workload, self._token = around, workload, undo_log.token
        self._checkpoint = dict(parts or {})
        self._failpoints: dict[str, list[Failpoints]] = {}  # node -> of each of its processes
        self.nodes = Nodes(Path("simulated"), record, undo_log, self._spawn, clock=lambda: around.world.now,
                           last_lines=lambda *_: "  (a simulated node has no log)")
        self._network = SimulatedNetwork(around.world, around.parameters)
        self.links = RunLinks(SimulatedLinks(self._network), self.nodes, undo_log)
        self.files = self._disks = SimulatedDisks(self.nodes)
        self._faults = NetworkFaults(around.world, self._network, self.links)
        self.parts = (self._disks, self._faults, SimulatedMachines(self.nodes, self._disks),
                      SimulatedThreads(self.nodes))

    @property
    def next_at(self) -> float:
        """Return when there is something for `poll` that nothing announces, in seconds of virtual time; infinite for
        never."""
        return min((node.next_at for node in self.nodes.everyone()), default=float("inf"))

    def start(self, nodes: Sequence[NodeSpec]) -> None:
        """Start all nodes: first those that listen; they are waited for."""
        for spec in (node for node in nodes if node.listens):
            self.nodes.start(spec, spec.incarnation)
            self._await_listening(spec.name)
        for spec in (node for node in nodes if not node.listens):
            self.join(spec)

    def join(self, node: NodeSpec) -> None:
        """Make the link, start the node."""
        self.links.make(node.name, node.connects_to)
        self.nodes.start(node, node.incarnation)

    def residue(self) -> list[str]:
        """Links that are about to be there again are: elsewhere a restart is over only then."""
        self._faults.bring_back()
        return [*super().residue(), *self._faults.residue()]

    def stop(self) -> None:
        """Do nothing: nothing is left."""

    # -- probes and impostors ------------------------------------------------------------------------------------------

    def sound(self, link: str, reply_bytes: int, send_bytes: int, watch_close: bool) -> Sounding:
        """Return what a probe through a link would measure now."""
        server = self._server(self.nodes[link].spec.connects_to)
        return sounding(self._network.links[link], server, self._around, reply_bytes, send_bytes, watch_close)

    def impostor(self, learner: str, rogue: Impostor, count: int, timeout_s: float,
                 done: Callable[[int], None]) -> None:
        """Let somebody take a learner's place until so many contributions were taken, or the time is over."""
        SimulatedImpostor(self._around, self._network.links[learner],
                          lambda: self._server(self.nodes[learner].spec.connects_to), rogue, count,
                          self._around.world.now + timeout_s, done)

    # -- processes -----------------------------------------------------------------------------------------------------

    def _spawn(self, spec: NodeSpec, number: int) -> VirtualProcess:
        part = global_checkpoint.own(self._checkpoint.get(spec.name), number)
        earlier = self._failpoints.setdefault(spec.name, [])
        before: Counter[str] = reduce(or_, (points.passed for points in earlier), Counter())
        earlier.append(points := Failpoints(holds(spec.failpoints), part, before))
        if spec.listens:
            disk = self._disks.new(spec.name)
            return VirtualProcess(SimulatedServer(self._around, spec.name, number, points, disk,
                                                  lambda: self._coordinator(spec.name, disk, number)))
        return VirtualProcess(SimulatedClient(
            self._around, spec.name, number, points, self._network.links[spec.name],
            lambda: self._server(spec.connects_to),
            lambda: self._workload.worker(spec.name, number, self._token, part)))

    def _coordinator(self, name: str, disk: MemoryDisk, number: int) -> Coordinator:
        if (part := self._checkpoint.pop(name, None)) is not None:
            self._workload.put_back(part, disk)  # once: what is lost later must not be made good by it
        return self._workload.coordinator(disk, number)

    def _server(self, name: str) -> SimulatedServer:
        process = self.nodes[name].process.simulated
        assert isinstance(process, SimulatedServer), "others connect to it"
        return process

    def _await_listening(self, name: str) -> None:
        server = self._server(name)
        while not server.listening:
            if server.status is not None:
                raise ClusterError(f"{name} did not start")
            self._around.world.run(self._around.world.now + self._around.parameters.tick)
