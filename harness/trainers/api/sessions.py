"""Who is connected: what every coordinator has in common.

Admits peers by their introduction, closes connections that are silent, tells everybody where training stands, and the
end. No I/O.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Generic, Protocol, TypeVar

from diloco_chaos.harness.base.tensors import Tensors
from diloco_chaos.harness.record.tape import events
from diloco_chaos.harness.trainers.api.settings import TrainerSettings
from diloco_chaos.harness.trainers.core.effects import Close, Effect, Send, Stop, Timer
from diloco_chaos.harness.trainers.wire.messages import Farewell, Introduction, Message

_LEAVE = "leave"
"""Key of the timer after which nobody is waited for any more."""


class KnownPeer(Protocol):
    """A peer that introduced itself."""

    heard: float

    @property
    def name(self) -> str:
        """Its node."""

    @property
    def incarnation(self) -> int:
        """Return the incarnation of the peer's process."""

    @property
    def connection(self) -> int | None:
        """None while it is gone."""


P = TypeVar("P", bound=KnownPeer)
H = TypeVar("H", bound=Introduction)


class PeerSessions(ABC, Generic[P, H]):
    """See the module."""

    introduction: type[H]
    """What a peer says first."""

    def __init__(self, settings: TrainerSettings, every: float) -> None:
        """`every`: seconds between two heartbeats; at each, every peer gets a message, and silent peers are given
        up."""
        self._names, self._timeout, self._every = settings.names, settings.heartbeat_timeout, every
        self.steady = False
        self.finished = False
        self.peers: dict[str, P] = {}
        self._by_connection: dict[int, P] = {}
        self._left: dict[str, float] = {}  # lost peer -> when
        self._unnotified: set[str] = set()  # peers that may not have read yet that training is over
        self._late: dict[int, str] = {}  # connection -> the peer that came after that

    def on_message(self, connection: int, message: Message, tensors: Tensors, now: float) -> Iterable[Effect]:
        """A whole frame arrived."""
        if self.finished:
            return self._after_the_end(connection, message)
        if isinstance(message, self.introduction):
            return self._hello(connection, message, now)
        peer = self._by_connection.get(connection)
        if peer is None:
            return (Close(connection, "the first frame must be a hello"),)
        peer.heard = now
        return self._take(peer, message, tensors, now)

    def on_lost(self, connection: int, reason: str, now: float) -> Iterable[Effect]:
        """A connection ended."""
        if self.finished:
            return ()
        if (peer := self._by_connection.get(connection)) is not None:
            self._left[peer.name] = now
        return self._lost(connection, reason, now)

    def on_timer(self, key: str, now: float) -> Iterable[Effect]:
        """A timer fired."""
        if self.finished:
            return (Stop("finished"),) if key == _LEAVE else ()
        return self._timer(key, now)

    @abstractmethod
    def _lost(self, connection: int, reason: str, now: float) -> Iterable[Effect]:
        """A connection ended while training went on."""

    @abstractmethod
    def _timer(self, key: str, now: float) -> Iterable[Effect]:
        """A timer fired while training went on."""

    @abstractmethod
    def _hello(self, connection: int, hello: H, now: float) -> Iterable[Effect]:
        """Somebody introduces itself."""

    @abstractmethod
    def _take(self, peer: P, message: Message, tensors: Tensors, now: float) -> Iterable[Effect]:
        """Somebody who is known says anything else."""

    @abstractmethod
    def _standing(self, now: float) -> tuple[Message, Tensors]:
        """Return the message that says where training stands, and its payload."""

    @abstractmethod
    def _end(self) -> tuple[Message, Tensors]:
        """Return the message that training is over, and its payload."""

    def _turn_away(self, connection: int, hello: H, newest: int, ours: bool = True) -> list[Effect]:
        """Return how a node is refused that is no learner of this run, or whose successor is known (`newest`); empty:
        it is welcome. `ours`: its model is this run's."""
        if hello.node not in self._names or not ours:
            return [Close(connection, f"{hello.node} is not a learner of this run")]
        if hello.incarnation < newest:
            return [events.Refused(learner=hello.node, incarnation=hello.incarnation, reason="old incarnation"),
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

    def _finish(self, now: float, step: int, processed: int, merged: int) -> Iterable[Effect]:
        """End training, and wait for every peer that is connected or was lately: one that does not read the end on its
        connection comes back for it."""
        self.finished = True
        yield events.Finished(step=step, processed=processed, merged=merged)
        connected = {peer.name for peer in self.peers.values() if peer.connection is not None}
        self._unnotified = connected | {name for name, t in self._left.items() if now - t <= self._timeout}
        yield from self._tell_all(*self._end())
        yield Timer(_LEAVE, now + self._timeout) if self._unnotified else Stop("finished")

    def _after_the_end(self, connection: int, message: Message) -> Iterable[Effect]:
        """Answer a peer that connects with the end, and stop waiting for a peer that has read it."""
        if isinstance(message, self.introduction) and message.node in self._names:
            self._late[connection] = message.node
            yield Send(*self._end(), to=connection)
        elif isinstance(message, Farewell):
            peer = self._by_connection.get(connection)
            self._unnotified.discard(peer.name if peer is not None else self._late.get(connection, ""))
            if not self._unnotified:
                yield Stop("finished")
