"""A simulated learner's process: one connection that is made again whenever it breaks, and inner steps beside
everything else; `diloco_chaos.harness.trainers.node.client` on sockets."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from msgspec.structs import replace

from diloco_chaos.harness.base.tensors import Tensors
from diloco_chaos.harness.record.tape import events
from diloco_chaos.harness.simulation.host import SimulatedHost
from diloco_chaos.harness.simulation.network import Link, SimulatedConnection
from diloco_chaos.harness.simulation.process import SimulatedProcess
from diloco_chaos.harness.simulation.server import SimulatedServer
from diloco_chaos.harness.trainers.core.effects import Close, Compute, Effect, Send
from diloco_chaos.harness.trainers.core.memory import Corruption
from diloco_chaos.harness.trainers.core.roles import Corruptible, Worker
from diloco_chaos.harness.trainers.node.backoff import CONNECT_S, Backoff
from diloco_chaos.harness.trainers.node.client import CONGESTED
from diloco_chaos.harness.trainers.node.failpoints import Failpoints
from diloco_chaos.harness.trainers.wire.messages import Message, Refused

_ALMOST_S = 1e-9


class SimulatedClient(SimulatedProcess):
    """A learner's process, or a peer's."""

    role = "learner"

    def __init__(self, around: SimulatedHost, name: str, incarnation: int, failpoints: Failpoints, link: Link,
                 server: Callable[[], SimulatedServer], make_core: Callable[[], Worker]) -> None:
        """`server()`: who is at the other end of the link now."""
        self._link, self._server, self._make = link, server, make_core
        self._core = None
        self._connection: SimulatedConnection | None = None
        self._greeted = False  # what was queued before it connected must not come before its hello
        self._heard: float | None = None  # when anything was last heard on the connection
        self._backoff = Backoff(around.world.chance)
        self._silence: float | None = None
        self._computed: tuple[float, Callable[..., Iterable[Effect]], tuple[Any, ...]] | None = None
        self._finishes = 0.0
        self._computation = 0
        self.corruptions: list[Corruption] = []
        """Orders for failing memory, carried out before the next inner step."""
        self._rest: Send | None = None  # of a frame that was cut in two
        super().__init__(around, name, incarnation, failpoints, around.parameters.start_learner)

    _core: Worker | None

    @property
    def core(self) -> Worker | None:
        """The state machine, once it is up."""
        return self._core

    def _up(self) -> None:
        self._core = self._make()
        self._silence = self._core.heartbeat_timeout
        self.record(events.Imported())
        self._attempt()

    # -- its connection ----------------------------------------------------------------------------------------------

    def _attempt(self) -> None:
        """Try to connect."""
        if self._link.vanished:
            self.world.after(CONNECT_S, self.feed, self._refused)
        elif not self._link.enabled:
            self._refused()
        else:
            server = self._server()
            self._connection = self._link.connect(next(self.around.numbers), self, server)
            self._heard = None
            self._greeted = False
            if server.listening:
                server.accept(self._connection)
            else:  # the link takes it, and finds nobody at the other end
                self._connection.server_open = False
                self.world.after(self.around.parameters.delay, self._connection.broken, "refused")
            self.feed(self._on_connected)
            if self._silence is not None:
                self.world.after(self._silence, self.feed, self._on_silence, self._connection, self.world.now)

    def _refused(self) -> None:
        self.world.after(self._backoff.refused(), self.feed, self._attempt)

    def _on_connected(self) -> Iterable[Effect]:
        assert self._core is not None, "it is up"
        self._greeted = True
        return self._core.on_connected(self.now())

    def _on_silence(self, connection: SimulatedConnection, since: float) -> Iterable[Effect] | None:
        """Nothing was heard for as long as that may last, unless something was."""
        if self._connection is not connection or not connection.client_open or self._silence is None:
            return None
        left = (since if self._heard is None else self._heard) + self._silence - self.world.now
        if left > _ALMOST_S:
            self.world.after(left, self.feed, self._on_silence, connection, since)
            return None
        return self._on_lost(connection, f"nothing heard for {self._silence:.1f} s")

    def arrived(self, connection: SimulatedConnection, message: Message, tensors: Tensors) -> None:
        """A whole frame."""
        self._heard = self.world.now
        self.feed(self._on_message, connection, message, tensors)

    def ended(self, connection: SimulatedConnection, reason: str) -> None:
        """The connection ended."""
        self.feed(self._on_lost, connection, reason)

    def _on_message(self, connection: SimulatedConnection, message: Message,
                    tensors: Tensors) -> Iterable[Effect] | None:
        assert self._core is not None, "it is up"
        if connection is not self._connection:
            return None
        if isinstance(message, Refused):
            if message.final:
                self.record(events.Superseded(reason=message.reason))
                self.exit(0)
                return None
            return self._on_lost(connection, f"refused: {message.reason}")
        return self._core.on_message(message, tensors, self.now())

    def _on_lost(self, connection: SimulatedConnection, reason: str) -> Iterable[Effect] | None:
        if connection is not self._connection:
            return None
        assert self._core is not None, "it is up"
        connection.close_client()
        heard, self._connection = self._heard is not None, None
        self.world.after(self._backoff.lost(heard), self.feed, self._attempt)
        return self._core.on_lost(reason, self.now())

    def _send(self, send: Send) -> None:
        connection = self._connection
        if connection is None or not connection.client_open or not self._greeted:
            return
        if send.message.replaceable and connection.up.backlog() > CONGESTED:
            return
        size = self.around.sizes.of(send.message, send.tensors)
        if send is self._rest:
            self._rest = None
            connection.to_server(size - size // 2, send.message, send.tensors)
        elif send.half and self._failpoints.due(send.half, self.core, self.record):
            connection.half_to_server(size // 2, size)
            self._rest = Send(send.message, send.tensors, send.to, "", send.sent)  # it goes on there, if it lives
            self._effects.appendleft(self._rest)
            self._stop_here()
            return
        else:
            connection.to_server(size, send.message, send.tensors)
        if send.sent is not None:
            self.record(replace(send.sent, bytes=size))

    def _close(self, effect: Close) -> None:
        if self._connection is not None:
            self._connection.close_client()

    def _hang_up(self) -> None:
        if self._connection is not None:
            self._connection.close_client()
            self._connection = None

    # -- inner steps, beside everything else -------------------------------------------------------------------------

    def _compute(self, effect: Compute) -> None:
        core, began = self._core, self.now()
        assert core is not None, "it is up"
        if self.corruptions:
            assert isinstance(core, Corruptible), "a plan that asks for it is refused else"
            for corruption in self.corruptions:
                for event in core.corrupt(corruption):
                    self.record(event)
            self.corruptions.clear()
        self._begin(core.on_computed, (core.compute(effect), began))

    def _begin(self, then: Callable[..., Iterable[Effect]], arguments: tuple[Any, ...]) -> None:
        parameters = self.around.parameters
        took = self.world.near(parameters.compute, parameters.compute_spread)
        self._computed = (took, then, arguments)
        self._plan_computed(took)

    def _plan_computed(self, takes: float) -> None:
        self._computation += 1
        self._finishes = self.world.now + takes
        self.world.at(self._finishes, self._done, self._computation)

    def _done(self, computation: int) -> None:
        if computation == self._computation and self._computed is not None and self.status is None and not self.frozen:
            _, then, arguments = self._computed
            self._computed = None
            self.feed(self._on_computed, then, arguments)

    def _on_computed(self, then: Callable[..., Iterable[Effect]], arguments: tuple[Any, ...]) -> Iterable[Effect]:
        return then(*arguments, self.now())

    def _suspend(self) -> None:
        super()._suspend()
        if self._computed is not None:
            self._computed = (max(0.0, self._finishes - self.world.now), *self._computed[1:])
            self._computation += 1

    def _resume(self) -> None:
        if self._computed is not None:
            self._plan_computed(self._computed[0])
