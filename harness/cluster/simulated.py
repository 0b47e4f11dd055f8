"""The cluster under virtual time: one process, thousands of times as fast as a clock, and the same every time."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal

from harness.cluster.base import ClusterError, NodeSpec, Recorder
from harness.cluster.duty import shares
from harness.cluster.incarnation import Incarnation
from harness.cluster.supervised import SupervisedCluster
from harness.ledger import Ledger
from harness.links.pace import Pace
from harness.simulation.client import SimulatedClient
from harness.simulation.disk import MemoryDisk
from harness.simulation.network import Connection, Link, Network
from harness.simulation.process import SimulatedProcess
from harness.simulation.server import SimulatedServer
from harness.simulation.surroundings import Surroundings
from harness.trainer import cuts
from harness.trainer.config import TrainerConfig
from harness.trainer.cores import learner_core, syncer_core
from harness.trainer.disk import Content
from harness.trainer.holds import HoldPoints
from harness.trainer.hub import Hub
from harness.trainer.messages import AnyMessage
from harness.trainer.node import holds
from harness.trainer.probe import PROBE_TIMEOUT_S, Sounding
from harness.trainer.replicas import MakeReplica
from harness.trainer.rogue import Rogue
from harness.trainer.syncer import Syncer
from harness.trainer.tensors import Tensors

_QUESTION_BYTES = 120
_LINKS_RESTART_S = 0.9


class SimulatedIncarnation(Incarnation):
    """See `Incarnation`; what lasts is in no ledger, because nothing outlives the process that simulates."""

    def __init__(self, spec: NodeSpec, number: int, ledger: Ledger, process: SimulatedProcess) -> None:
        super().__init__(spec, number, ledger, lambda: process.world.now)
        self.process = process
        self.oom = False
        self._cycle = 0
        self._throttled = False

    @property
    def pid(self) -> int:
        """A number that no other one has."""
        return self.process.pid

    def send(self, number: signal.Signals) -> None:
        """SIGKILL and SIGTERM; SIGTERM waits for a process that stands still."""
        if number == signal.SIGKILL:
            self.process.die()
        elif number == signal.SIGTERM:
            self.process.feed(self.process.exit, 0)

    def ended(self) -> int | None:
        """Its exit status."""
        return self.process.status

    def freeze(self) -> None:
        """SIGSTOP."""
        self.process.freeze()

    def thaw(self) -> None:
        """SIGCONT."""
        self.process.thaw()

    def throttle(self, share: float | None, spread: float, seed: int) -> None:
        """The duty cycle of real processes, in virtual time."""
        self._cycle += 1
        if self._throttled:
            self._throttled = False
            self._run(True)
        if share is not None and self.alive:
            self._throttled = True
            self._turn(self._cycle, shares(share, spread, seed))

    @property
    def throttled(self) -> bool:
        """Whether a duty cycle is on."""
        return self._throttled

    def stands_still(self) -> bool:
        """Whether it is stopped."""
        return self.process.frozen

    def reap(self, until: float) -> None:
        """Nothing outlives the run."""

    def wait(self) -> int:
        """Its end is there at once."""
        status = self.ended()
        if status is None:
            raise ClusterError(f"{self.name} does not end")
        self.gone(status, self._clock())
        return status

    def details(self) -> dict[str, object]:
        """Why it was killed."""
        return {"oom": True} if self.oom else {}

    def limit_writes(self, size: int, restart_after: float) -> None:
        """What is written is cut off."""
        if self.alive and self.process.disk is not None:
            self.process.disk.limit = size
            self._limits = (size, size)
            self.doomed, self.restart_after = True, restart_after

    def unlimit_writes(self) -> None:
        """No limit any more."""
        if self.process.disk is not None:
            self.process.disk.limit = None
        if self._limits is not None:
            self._limits = None
            self.spared()

    def spared(self) -> None:
        """What might have ended it is over."""
        self.doomed = self.ended() is not None

    def gone(self, status: int, now: float) -> None:
        """Limits are those of a process."""
        if self.process.disk is not None:
            self.process.disk.limit = None
        super().gone(status, now)

    def _turn(self, cycle: int, parts: Callable[[], tuple[float, float]]) -> None:
        """Stop for a while, run for a while, and so on."""
        if cycle != self._cycle or not self.alive:
            return
        still, running = parts()
        self._run(False)
        world = self.process.world
        world.after(still, self._run_if, cycle)
        world.after(still + running, self._turn, cycle, parts)

    def _run_if(self, cycle: int) -> None:
        if cycle == self._cycle:
            self._run(True)

    def _run(self, runs: bool) -> None:
        if self._paused:
            return
        if runs and not self.process.held:
            self.process.thaw()
        elif not runs:
            self.process.freeze()


class SimulatedCluster(SupervisedCluster[SimulatedIncarnation]):
    """Implements `harness.cluster.base.Cluster`."""

    def __init__(self, around: Surroundings, config: TrainerConfig, initial: Tensors, replicas: MakeReplica,
                 record: Recorder, ledger: Ledger, parts: Mapping[str, Content] | None = None) -> None:
        """`parts`: of the cut that the run goes on from."""
        self._around, self._config, self._initial, self._replicas = around, config, initial, replicas
        self._parts = dict(parts or {})
        self._world = around.world
        super().__init__(Path("simulated"), record, ledger, lambda: self._world.now)
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
        incarnation = self._nodes[node]
        disk = self._disks[node]
        incarnation.doomed, incarnation.restart_after = True, restart_after
        disk.full = True
        return sum(len(disk.data(name)) for name in disk.names())

    def empty_disk(self, node: str) -> None:
        """There is room again."""
        if self._disks[node].full:
            self._disks[node].full = False
            self._nodes[node].spared()

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
            if link.name not in self._cut:
                link.enable(True)

    def residue(self) -> list[str]:
        """Links that are about to be there again are: elsewhere a restart is over only then."""
        for link in list(self._coming):
            self._link_is_back(link)
        return super().residue()

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
        self._record("spawn", target=spec.name, incarnation=number, pid=node.pid)

    def _incarnation(self, spec: NodeSpec, number: int) -> SimulatedIncarnation:
        part = cuts.own(self._parts.get(spec.name), number)
        points = HoldPoints(holds(spec.first_start[1::2]) if number == spec.incarnation else {}, part)
        process: SimulatedProcess
        if spec.listens:
            disk = self._disks.setdefault(spec.name, MemoryDisk())
            process = SimulatedServer(self._around, spec.name, number, points, disk,
                                      lambda: self._syncer_core(spec.name, disk, number))
        else:
            index = self._config.names.index(spec.name)
            process = SimulatedClient(
                self._around, spec.name, number, points, self._network.links[spec.name],
                lambda: self._server(spec.connects_to),
                lambda: learner_core(self._config, spec.name, number, self._ledger.token, self._replicas(index), part))
        return SimulatedIncarnation(spec, number, self._ledger, process)

    def _syncer_core(self, name: str, disk: MemoryDisk, number: int) -> Syncer | Hub:
        if (part := self._parts.pop(name, None)) is not None:  # once: what is lost later must not be made good by it
            cuts.put_back(part, disk)
        return syncer_core(self._config, disk, self._initial, number)

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
            took, passed, end = _passage(pace, size, self._world.now)
            received = passed if pace is down else 0
            if end == "silent" or (end != "answered" and took > PROBE_TIMEOUT_S):
                return Sounding("silent", PROBE_TIMEOUT_S, received)
            spent += took + base / 2
            if end != "answered":
                return Sounding(end, spent, received)
        closing = up.end_delay_s + down.end_delay_s + base if watch_close else None
        return Sounding("answered", spent, received, closing)

    def impostor(self, learner: str, rogue: Rogue, count: int, timeout_s: float, done: Callable[[int], None]) -> None:
        """Let somebody take a learner's place until so many contributions were taken, or the time is over."""
        _Impostor(self._around, self._network.links[learner],
                  lambda: self._server(self._nodes[learner].spec.connects_to), rogue, count,
                  self._world.now + timeout_s, done)


class _Impostor:
    """`harness.trainer.rogue.attack`, in virtual time."""

    def __init__(self, around: Surroundings, link: Link, server: Callable[[], SimulatedServer], rogue: Rogue,
                 wanted: int, until: float, done: Callable[[int], None]) -> None:
        self.name = link.name
        self._around, self._link, self._server, self._rogue = around, link, server, rogue
        self._wanted, self._until, self._done = wanted, until, done
        self._connection: Connection | None = None
        around.world.at(until, self._over)
        self._attempt()

    def _attempt(self) -> None:
        if self._around.world.now >= self._until:
            return
        server = self._server()
        if not self._link.enabled or not server.listening:
            self._over()
            return
        self._connection = self._link.connect(next(self._around.numbers), self, server)
        server.accept(self._connection)
        hello = self._rogue.hello()
        self._connection.to_server(self._around.sizes.of(hello, {}), hello, {})

    def arrived(self, connection: Connection, message: AnyMessage, tensors: Tensors) -> None:
        """A frame from the syncer."""
        for answer, payload in self._rogue.on_message(message, tensors):
            connection.to_server(self._around.sizes.of(answer, payload), answer, payload)
        if self._rogue.sent >= self._wanted:
            self._over()

    def ended(self, connection: Connection, reason: str) -> None:
        """The real one is back."""
        self._connection = None
        self._around.world.after(self._rogue.pause(), self._attempt)

    def _over(self) -> None:
        done, self._done = self._done, _nobody
        self._until = 0.0
        if self._connection is not None:
            self._connection.close_client()
            self._connection = None
        done(self._rogue.sent)


def _nobody(sent: int) -> None:
    pass


def _passage(pace: Pace, size: int, now: float) -> tuple[float, int, Literal["answered", "reset", "closed", "silent"]]:
    """Seconds until so many bytes have passed these toxics, how many did, and how that ends; `silent`: nothing comes
    for longer than anybody waits."""
    if pace.reset_s is not None:
        return pace.reset_s, 0, "reset"
    if pace.swallows:
        return (pace.silence_s, 0, "closed") if pace.silence_s is not None else (0.0, 0, "silent")
    at, left, last = pace.ready_at(now), size, now
    while left > 0 and not pace.exhausted:
        part = pace.slice(left)
        at = pace.release_at(at, part, now)
        if at - last > PROBE_TIMEOUT_S:
            return PROBE_TIMEOUT_S, size - left, "silent"
        pace.carry(part)
        left, last = left - part, at
    return at - now, size - left, "closed" if pace.exhausted else "answered"
