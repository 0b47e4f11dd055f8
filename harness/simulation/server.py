"""A simulated syncer's process: many connections, one core; `diloco_chaos.harness.trainers.node.server` on sockets."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from diloco_chaos.harness.base.tensors import Tensors
from diloco_chaos.harness.record.storage import checkpoint
from diloco_chaos.harness.record.tape import events
from diloco_chaos.harness.record.tape.events import Event
from diloco_chaos.harness.simulation.disk import MemoryDisk
from diloco_chaos.harness.simulation.host import SimulatedHost
from diloco_chaos.harness.simulation.network import SimulatedConnection
from diloco_chaos.harness.simulation.process import SimulatedProcess
from diloco_chaos.harness.trainers.core.effects import Close, Compute, Effect, Send, Snapshot, Stop
from diloco_chaos.harness.trainers.core.roles import Coordinator
from diloco_chaos.harness.trainers.node.failpoints import Failpoints
from diloco_chaos.harness.trainers.wire.messages import Message, Refused
from diloco_chaos.harness.trainers.wire.traffic import TrafficCounter


class SimulatedServer(SimulatedProcess):
    """The syncer's process, or the hub's."""

    role = "syncer"

    def __init__(self, around: SimulatedHost, name: str, incarnation: int, failpoints: Failpoints, disk: MemoryDisk,
                 make_core: Callable[[], Coordinator]) -> None:
        self._make, self._core = make_core, None
        self._open: dict[int, SimulatedConnection] = {}
        self._traffic = TrafficCounter()
        super().__init__(around, name, incarnation, failpoints, around.parameters.start_syncer, disk)

    _core: Coordinator | None

    @property
    def core(self) -> Coordinator | None:
        """The state machine, once it is up."""
        return self._core

    @property
    def listening(self) -> bool:
        """Return whether connections are taken; one that stands still takes them, too."""
        return self._core is not None and self.status is None

    def _up(self) -> Iterable[Effect]:
        try:
            self._core = self._make()
        except checkpoint.CheckpointError as error:
            self.record(events.RefusedCheckpoint(reason=str(error)))
            self.exit(2)
            return ()
        self.record(events.Listening(host="simulated", port=1))
        self.world.stop()
        return self._core.start(self.now())

    def accept(self, connection: SimulatedConnection) -> None:
        """Somebody connected."""
        self._open[connection.number] = connection

    def arrived(self, connection: SimulatedConnection, message: Message, tensors: Tensors) -> None:
        """A whole frame."""
        self._traffic.received[message.type] += self.around.sizes.of(message, tensors)
        self.feed(self._on_message, connection.number, message, tensors)

    def ended(self, connection: SimulatedConnection, reason: str) -> None:
        """A connection ended."""
        self.feed(self._on_end, connection, reason)

    def _on_message(self, number: int, message: Message, tensors: Tensors) -> Iterable[Effect]:
        assert self._core is not None, "nobody connects before"
        return self._core.on_message(number, message, tensors, self.now())

    def _on_end(self, connection: SimulatedConnection, reason: str) -> Iterable[Effect]:
        assert self._core is not None, "nobody connects before"
        if connection.partial is not None:
            arrived, expected = connection.partial
            client = getattr(connection.client, "name", "unknown")
            self.record(events.PartialFrame(peer=client, bytes=arrived, expected=expected))
        self._open.pop(connection.number, None)
        return self._core.on_lost(connection.number, reason, self.now())

    def _send(self, send: Send) -> None:
        self._to(self._open.get(send.to or 0), send.message, send.tensors)

    def _to(self, connection: SimulatedConnection | None, message: Message, tensors: Tensors) -> None:
        if connection is not None:
            size = self.around.sizes.of(message, tensors)
            self._traffic.sent[message.type] += size
            connection.to_client(size, message, tensors)

    def _close(self, effect: Close) -> None:
        connection = self._open.pop(effect.to or 0, None)
        if connection is not None:
            self._to(connection, Refused(reason=effect.reason, final=effect.final), {})
            connection.close_server()

    def _write(self, event: Event) -> None:
        super()._write(event)
        if isinstance(event, events.Steady):  # so that what it takes to begin can be told apart
            self.record(self._traffic.event())

    def _snapshot(self, effect: Snapshot) -> None:
        super()._snapshot(effect)
        self.record(self._traffic.event())

    def _stop(self, effect: Stop) -> None:
        self.record(self._traffic.event())
        super()._stop(effect)

    def _compute(self, effect: Compute) -> None:
        raise NotImplementedError

    def _hang_up(self) -> None:
        for connection in list(self._open.values()):
            connection.close_server()
        self._open.clear()
