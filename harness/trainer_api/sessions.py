"""Who is connected: what every coordinator has in common.

Admits peers by their introduction, closes connections that are silent, tells everybody where training stands, and the
end. No I/O.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, Generic, Protocol, TypeVar

from harness.core.effects import Close, Effect, Record, Send, Stop, Timer
from harness.tensors import Tensors
from harness.trainer_api.settings import TrainerSettings
from harness.wire.messages import Introduction, Message


class Known(Protocol):
    """A peer that introduced itself."""

    heard: float

    @property
    def name(self) -> str:
        """Its node."""

    @property
    def incarnation(self) -> int:
        """Of its process."""

    @property
    def connection(self) -> int | None:
        """None while it is gone."""


P = TypeVar("P", bound=Known)
H = TypeVar("H", bound=Introduction)


class PeerSessions(ABC, Generic[P, H]):
    """See the module."""

    introduction: type[H]
    """What a peer says first."""

    def __init__(self, settings: TrainerSettings, every: float) -> None:
        """`every`: seconds between two heartbeats, at which everybody hears something, and who was silent is given
        up."""
        self._names, self._timeout, self._every = settings.names, settings.heartbeat_timeout, every
        self.steady = False
        self.finished = False
        self.peers: dict[str, P] = {}
        self._by_connection: dict[int, P] = {}

    def on_message(self, connection: int, message: Message, tensors: Tensors, now: float) -> Iterable[Effect]:
        """A whole frame arrived."""
        if isinstance(message, self.introduction):
            return self._hello(connection, message, now)
        peer = self._by_connection.get(connection)
        if peer is None:
            return (Close(connection, "the first frame must be a hello"),)
        peer.heard = now
        return self._take(peer, message, tensors, now)

    @abstractmethod
    def on_lost(self, connection: int, reason: str, now: float) -> Iterable[Effect]:
        """A connection ended."""

    @abstractmethod
    def _hello(self, connection: int, hello: H, now: float) -> Iterable[Effect]:
        """Somebody introduces itself."""

    @abstractmethod
    def _take(self, peer: P, message: Message, tensors: Tensors, now: float) -> Iterable[Effect]:
        """Somebody who is known says anything else."""

    @abstractmethod
    def _standing(self, now: float) -> tuple[Message, Tensors]:
        """Where training stands."""

    @abstractmethod
    def _end(self) -> tuple[Message, Tensors]:
        """That it is over."""

    def _turn_away(self, connection: int, hello: H, newest: int, ours: bool = True) -> list[Effect]:
        """How somebody is refused who is no learner of this run, or whose successor is known (`newest`); empty: it is
        welcome. `ours`: its model is this run's."""
        if hello.node not in self._names or not ours:
            return [Close(connection, f"{hello.node} is not a learner of this run")]
        if hello.incarnation < newest:
            return [Record("refused", {"learner": hello.node, "incarnation": hello.incarnation,
                                       "reason": "old incarnation"}),
                    Close(connection, "a newer incarnation of this learner is known", final=True)]
        return []

    def _replace(self, hello: H, now: float) -> Iterable[Effect]:
        """Whoever had this learner's place before loses it."""
        known = self.peers.get(hello.node)
        if known and known.connection is not None:
            old = known.connection
            yield Close(old, "replaced by a newer connection", final=hello.incarnation > known.incarnation)
            yield from self.on_lost(old, "replaced by a newer connection", now)

    def _heartbeat(self, now: float) -> Iterable[Effect]:
        yield self._next_heartbeat(now)
        for peer in list(self.peers.values()):
            if peer.connection is not None and now - peer.heard > self._timeout:
                connection = peer.connection
                yield Close(connection, "silent")
                yield from self.on_lost(connection, f"silent for {now - peer.heard:.1f} s", now)
        yield from self._tell_all(*self._standing(now))

    def _next_heartbeat(self, now: float) -> Timer:
        return Timer("heartbeat", now + self._every)

    def _tell_all(self, message: Message, tensors: Tensors) -> Iterable[Effect]:
        return [Send(message, tensors, to=peer.connection) for peer in self.peers.values()
                if peer.connection is not None]

    def _finish(self, **told: Any) -> Iterable[Effect]:
        """Training is over; `told`: fields of the tape's event."""
        self.finished = True
        yield Record("finished", told)
        yield from self._tell_all(*self._end())
        yield Stop("finished")
