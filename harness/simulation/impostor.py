"""Somebody who takes a learner's place: `diloco_chaos.harness.trainers.wire.impersonation.attack`, in virtual time."""

from __future__ import annotations

from collections.abc import Callable

from diloco_chaos.harness.base.tensors import Tensors
from diloco_chaos.harness.simulation.host import SimulatedHost
from diloco_chaos.harness.simulation.network import Link, SimulatedConnection
from diloco_chaos.harness.simulation.server import SimulatedServer
from diloco_chaos.harness.trainers.wire.impostor import Impostor
from diloco_chaos.harness.trainers.wire.messages import Message


class SimulatedImpostor:
    """See the module. It goes on until so many contributions were taken, or the time is over."""

    def __init__(self, around: SimulatedHost, link: Link, server: Callable[[], SimulatedServer], rogue: Impostor,
                 wanted: int, until: float, done: Callable[[int], None]) -> None:
        self.name = link.name
        self._around, self._link, self._server, self._rogue = around, link, server, rogue
        self._wanted, self._until, self._done = wanted, until, done
        self._connection: SimulatedConnection | None = None
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

    def arrived(self, connection: SimulatedConnection, message: Message, tensors: Tensors) -> None:
        """A frame from the syncer."""
        for answer, payload in self._rogue.on_message(message, tensors):
            connection.to_server(self._around.sizes.of(answer, payload), answer, payload)
        if self._rogue.sent >= self._wanted:
            self._over()

    def ended(self, connection: SimulatedConnection, reason: str) -> None:
        """The real one is back."""
        self._connection = None
        self._around.world.after(self._rogue.pause(), self._attempt)

    def _over(self) -> None:
        done, self._done = self._done, _ignore
        self._until = 0.0
        if self._connection is not None:
            self._connection.close_client()
            self._connection = None
        done(self._rogue.sent)


def _ignore(sent: int) -> None:
    pass
