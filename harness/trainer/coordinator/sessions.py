"""Who is connected: what the syncer and the hub of data parallelism have in common.

Admits peers by their hello, closes connections that are silent, tells everybody the clock and the end. No I/O.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, Generic, Protocol, TypeVar

from harness.core.effects import Close, Effect, Record, Send, Stop, Timer
from harness.core.roles import SYNCER
from harness.storage.global_checkpoint import GlobalCheckpoints
from harness.tensors import Tensors
from harness.trainer.config.cluster_config import TrainerConfig
from harness.trainer.protocol.messages import MESSAGES, Clock, Finish, Hello
from harness.wire.messages import Message


class Known(Protocol):
    """A peer that said hello."""

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


class PeerSessions(ABC, Generic[P]):
    """See the module."""

    messages = MESSAGES

    def __init__(self, config: TrainerConfig, incarnation: int) -> None:
        self.config = config
        self.steady = False
        self.finished = False
        self.peers: dict[str, P] = {}
        self._by_connection: dict[int, P] = {}
        self._checkpoints = GlobalCheckpoints(config.checkpoint_interval, incarnation)

    def on_message(self, connection: int, message: Message, tensors: Tensors, now: float) -> Iterable[Effect]:
        """A whole frame arrived."""
        if isinstance(message, Hello):
            return self._hello(connection, message, now)
        peer = self._by_connection.get(connection)
        if peer is None:
            return (Close(connection, "the first frame must be a hello"),)
        peer.heard = now
        return self._take(peer, message, tensors, now)

    @abstractmethod
    def on_lost(self, connection: int, reason: str, now: float) -> Iterable[Effect]:
        """A connection ended."""

    def on_saved(self, checkpoint: int, now: float) -> Iterable[Effect]:
        """Its own part of a checkpoint is on stable storage."""
        return self._checkpoints.saved(SYNCER, checkpoint)

    @abstractmethod
    def _hello(self, connection: int, hello: Hello, now: float) -> Iterable[Effect]:
        """Somebody introduces itself."""

    @abstractmethod
    def _take(self, peer: P, message: Message, tensors: Tensors, now: float) -> Iterable[Effect]:
        """Somebody who is known says anything else."""

    @abstractmethod
    def _clock(self, now: float) -> Clock:
        """Where training stands."""

    def _turn_away(self, connection: int, hello: Hello, newest: int, ours: bool = True) -> list[Effect]:
        """How somebody is refused who is no learner of this run, or whose successor is known (`newest`); empty: it is
        welcome. `ours`: its model is this run's."""
        if hello.node not in self.config.names or not ours:
            return [Close(connection, f"{hello.node} is not a learner of this run")]
        if hello.incarnation < newest:
            return [Record("refused", {"learner": hello.node, "incarnation": hello.incarnation,
                                       "reason": "old incarnation"}),
                    Close(connection, "a newer incarnation of this learner is known", final=True)]
        return []

    def _replace(self, hello: Hello, now: float) -> Iterable[Effect]:
        """Whoever had this learner's place before loses it."""
        known = self.peers.get(hello.node)
        if known and known.connection is not None:
            old = known.connection
            yield Close(old, "replaced by a newer connection", final=hello.incarnation > known.incarnation)
            yield from self.on_lost(old, "replaced by a newer connection", now)

    def _heartbeat(self, now: float) -> Iterable[Effect]:
        yield self._next_heartbeat(now)
        for peer in list(self.peers.values()):
            if peer.connection is not None and now - peer.heard > self.config.heartbeat_timeout:
                connection = peer.connection
                yield Close(connection, "silent")
                yield from self.on_lost(connection, f"silent for {now - peer.heard:.1f} s", now)
        yield from self._send_clock(now)

    def _next_heartbeat(self, now: float) -> Timer:
        return Timer("heartbeat", now + self.config.heartbeat_s)

    def _send_clock(self, now: float) -> Iterable[Effect]:
        clock = self._clock(now)
        return [Send(clock, to=peer.connection) for peer in self.peers.values() if peer.connection is not None]

    def _finish(self, **told: Any) -> Iterable[Effect]:
        """Training is over; `told`: fields of the tape's event."""
        self.finished = True
        yield Record("finished", told)
        for peer in self.peers.values():
            if peer.connection is not None:
                yield Send(Finish(), to=peer.connection)
        yield Stop("finished")
