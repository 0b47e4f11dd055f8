"""Trainers that work in rounds: everybody who is there takes a step from the same state, and all go on from what their
contributions come to. Whoever derives from `RoundTrainer` says what a step is and what a round makes of them.

Theory of operation
-------------------
The coordinator has a state, numbered by rounds. It tells the state to whoever connects and, when a round is over, to
all. A learner that hears of a round takes a step for it, once, and sends what came out. A round is over when everybody
who is connected has; it is committed, recorded, and only then told.

Three times within `heartbeat_timeout` the coordinator says where it is, and every learner answers: by its contribution,
again if need be, or by one to no round while it computes. So nothing that is lost is waited for, and whoever is silent
for longer than that is gone. A contribution to another round than the open one is void, whoever it comes from.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from diloco_chaos.harness.base.tensors import Tensors, digest
from diloco_chaos.harness.record.storage.checkpoint import copies, load_either, tidied
from diloco_chaos.harness.record.storage.disk import Content, Disk
from diloco_chaos.harness.record.tape import events
from diloco_chaos.harness.trainers.api.sessions import PeerSessions
from diloco_chaos.harness.trainers.api.trainer import Trainer, Workload
from diloco_chaos.harness.trainers.core.effects import Commit, Compute, Effect, Send, Stop, Timer
from diloco_chaos.harness.trainers.core.pacer import Metronome
from diloco_chaos.harness.trainers.core.roles import Coordinator, Worker
from diloco_chaos.harness.trainers.wire.messages import Count, Farewell, Introduction, Message, vocabulary

_FILE = "state.safetensors"
_NONE = -1
"""The round of a contribution to none."""


class Part(NamedTuple):
    """A learner's part of a round: one inner step."""

    learner: str
    incarnation: int
    number: int
    """The learner's own count of steps, which never goes back within an incarnation."""
    tokens: int
    arrived: float
    """On the coordinator's clock, seconds."""
    digest: str
    """Of what it gave."""


def merged(version: int, digest: str, processed: int, opened: float, closed: float,
           parts: Sequence[Part]) -> events.Merge:
    """The `merge` event of a round, the `version`-th, counted from 1.

    Args:
        version: of what everybody goes on from.
        digest: of what came out.
        processed: tokens of the whole run, this round's included.
        opened: when the round began, on the coordinator's clock, seconds.
        closed: when the last part was there.
        parts: of its members, in the order of their names.
    """
    return events.Merge(round=version - 1, fragment=0, version=version, digest=digest, step=version,
                        processed=processed, merged=processed, opened=opened,
                        quorum_at=max(part.arrived for part in parts), closed=closed, grace=0.0, step_time=0.0,
                        sync_time=0.0, why="all answered", asked=[part.learner for part in parts], declined=[],
                        contributions=[
                            events.MergedPart(learner=part.learner, incarnation=part.incarnation, base=version - 1,
                                              first=part.number, last=part.number, steps=1, tokens=part.tokens,
                                              weight=float(part.tokens * part.tokens), arrived=part.arrived,
                                              digest=part.digest) for part in parts])


class Contribution(Message, frozen=True, kw_only=True):
    """The result of a learner's step for a round; its payload. A sign of life, too."""

    round: int
    number: Count
    """The learner's own count of steps."""


class State(Message, frozen=True, kw_only=True):
    """The state from which all go on, as the payload: a new round where it is one. It is answered."""

    round: Count
    steady: bool
    over: bool


MESSAGES = vocabulary(Introduction | Contribution | State)


class RoundTrainer(Trainer):
    """A trainer that works in rounds. `learner` counts from 1; the same arguments give the same result."""

    @abstractmethod
    def initial(self) -> Tensors:
        """Return the values from which the first round begins."""

    @abstractmethod
    def step(self, learner: int, round_: int, state: Tensors) -> tuple[Tensors, float]:
        """A learner's contribution to a round, and its loss. It is called beside everything else, and may take long."""

    @abstractmethod
    def merge(self, state: Tensors, contributions: Mapping[str, Tensors]) -> Tensors:
        """Return the values from which all go on: of the round's state, and its members' contributions by their names,
        in order."""

    def workload(self, data: Path | None, initial: Tensors, threads: int = 1) -> Workload:
        """There is no data but what `step` makes of its arguments."""
        return _Rounds(self, initial)


class _Rounds(Workload):
    def __init__(self, trainer: RoundTrainer, initial: Tensors) -> None:
        self._trainer, self._initial = trainer, initial

    def coordinator(self, disk: Disk, incarnation: int) -> Coordinator:
        return RoundCoordinator(self._trainer, self._initial, disk)

    def worker(self, name: str, incarnation: int, token: str, part: Content | None = None) -> Worker:
        return RoundWorker(self._trainer, name, incarnation, token)


@dataclass
class _Member:
    """A learner that is connected."""

    name: str
    incarnation: int
    connection: int
    heard: float
    given: tuple[Part, Tensors] | None = None
    """What it has contributed to the open round."""


class RoundCoordinator(PeerSessions[_Member, Introduction]):
    """Implements `diloco_chaos.harness.trainers.core.roles.Coordinator`."""

    messages = MESSAGES
    introduction = Introduction

    def __init__(self, trainer: RoundTrainer, initial: Tensors, disk: Disk) -> None:
        """Restore the coordinator from the disk, where it has a checkpoint.

        Raises:
            CheckpointError: the disk has a checkpoint, and no copy of it can be trusted.
        """
        settings = trainer.settings
        super().__init__(settings, settings.sign_s)
        self._trainer, self._settings = trainer, settings
        present = tidied(disk)
        self._resumed = bool(present.intersection(copies(_FILE)))
        begun = Content(initial, {"version": 0, "tokens": 0, "incarnations": {}})
        content = load_either(disk, _FILE, present)[0] if self._resumed else begun
        self._state, self._round = content.tensors, int(content.meta["version"])
        self._tokens = int(content.meta["tokens"])
        self._newest: dict[str, int] = dict(content.meta["incarnations"])
        """Incarnations that were heard of: an earlier one is refused, by this coordinator's successor, too."""
        self._contributed: set[str] = set()
        self._opened = 0.0

    def status(self) -> dict[str, object]:
        """Return what the coordinator knows of the training, for people who ask."""
        return {"steady": self.steady, "finished": self.finished, "round": self._round, "processed": self._tokens,
                "learners": sorted(self.peers)}

    def start(self, now: float) -> Iterable[Effect]:
        """It listens, and says from where it goes on."""
        self._opened = now
        begins = events.Resumed if self._resumed else events.Initial
        yield begins(versions=[self._round], digests=[digest(self._state)], step=self._round, processed=self._tokens)
        yield self._next_heartbeat(now)

    def _timer(self, key: str, now: float) -> Iterable[Effect]:
        """Everybody hears something, and is heard, or is gone."""
        return self._heartbeat(now)

    def _lost(self, connection: int, reason: str, now: float) -> Iterable[Effect]:
        """A connection ended: nobody waits for whoever was there."""
        member = self._by_connection.pop(connection, None)
        if member is not None:
            del self.peers[member.name]
            yield events.Lost(learner=member.name, incarnation=member.incarnation, reason=reason)
            yield from self._close_round(now)

    def on_saved(self, checkpoint: int, now: float) -> Iterable[Effect]:
        """There are no global checkpoints."""
        return ()

    def _hello(self, connection: int, hello: Introduction, now: float) -> Iterable[Effect]:
        if refusal := self._turn_away(connection, hello, self._newest.get(hello.node, 0)):
            yield from refusal
            return
        self._newest[hello.node] = hello.incarnation
        yield from self._replace(hello, now)
        self.peers[hello.node] = self._by_connection[connection] = _Member(hello.node, hello.incarnation, connection,
                                                                           now)
        yield events.Hello(learner=hello.node, incarnation=hello.incarnation, versions=[self._round],
                           versions_held=[_NONE])
        yield Send(*self._standing(now), to=connection)

    def _take(self, peer: _Member, message: Message, tensors: Tensors, now: float) -> Iterable[Effect]:
        if isinstance(message, Contribution) and message.round == self._round and not self.finished:
            tokens = self._settings.tokens_per_step_of(peer.name)
            part = Part(peer.name, peer.incarnation, message.number, tokens, now, digest(tensors))
            peer.given = part, tensors
            yield from self._close_round(now)

    def _close_round(self, now: float) -> Iterable[Effect]:
        """Merge the open round, if every member has contributed to it."""
        given = [self.peers[name].given for name in sorted(self.peers)]
        contributions = [contribution for contribution in given if contribution is not None]
        if self.finished or not contributions or len(contributions) < len(given):
            return
        parts = [part for part, _ in contributions]
        self._state = self._trainer.merge(self._state, {part.learner: made for part, made in contributions})
        self._round, self._tokens = self._round + 1, self._tokens + sum(part.tokens for part in parts)
        for member in self.peers.values():
            member.given = None
        yield Commit(_FILE, self._state, {"version": self._round, "tokens": self._tokens,
                                          "incarnations": dict(self._newest)})
        yield merged(self._round, digest(self._state), self._tokens, self._opened, now, parts)
        self._opened = now
        self._contributed.update(part.learner for part in parts)
        if not self.steady and self._contributed.issuperset(self._settings.starters):
            self.steady = True
            yield events.Steady(step=self._round, processed=self._tokens)
        if self._tokens >= self._settings.budget_tokens:
            yield from self._finish(now, step=self._round, processed=self._tokens, merged=self._tokens)
        else:
            yield from self._tell_all(*self._standing(now))

    def _standing(self, now: float) -> tuple[Message, Tensors]:
        return State(round=self._round, steady=self.steady, over=self.finished), self._state

    def _end(self) -> tuple[Message, Tensors]:
        return State(round=self._round, steady=self.steady, over=True), self._state


class RoundWorker:
    """Implements `diloco_chaos.harness.trainers.core.roles.Worker`."""

    messages = MESSAGES

    def __init__(self, trainer: RoundTrainer, name: str, incarnation: int,
                 token: str) -> None:
        settings = trainer.settings
        self._trainer, self._settings, self._token = trainer, settings, token
        self.name, self.incarnation, self.heartbeat_timeout = name, incarnation, settings.heartbeat_timeout
        self.steady = False
        self._learner = settings.names.index(name) + 1
        self._number = 0
        self._ready = False
        self._busy = False  # it waits for its pace, or computes
        self._heard: tuple[State, Tensors] | None = None  # the newest
        self._made: tuple[Contribution, Tensors] | None = None  # the newest
        self._pace = Metronome(settings.step_time_of(name), settings.variance, f"{settings.seed}/{name}/{incarnation}")

    def status(self) -> dict[str, object]:
        """Return what the worker knows of the training, for people who ask."""
        return {"steady": self.steady, "steps": self._number}

    def on_connected(self, now: float) -> Iterable[Effect]:
        """Introduce yourself."""
        yield Send(Introduction(token=self._token, node=self.name, incarnation=self.incarnation))

    def on_lost(self, reason: str, now: float) -> Iterable[Effect]:
        """The driver connects again."""
        yield events.Disconnected(reason=reason, step=self._number)

    def on_message(self, message: Message, tensors: Tensors, now: float) -> Iterable[Effect]:
        """A new round, or a question whether anybody is there."""
        if not isinstance(message, State):
            return
        self.steady, self._heard = message.steady, (message, tensors)
        if message.over:
            yield events.Finished(step=self._number, tokens=self._number)
            yield Send(Farewell())
            yield Stop("finished")
            return
        if not self._ready:
            self._ready = True
            yield events.Ready(step=self._number, position=message.round)
        if self._made is not None and self._made[0].round == message.round:
            yield Send(*self._made)
        elif self._busy:
            yield Send(Contribution(round=_NONE, number=self._number))
        else:
            yield from self._begin(now)

    def on_timer(self, key: str, now: float) -> Iterable[Effect]:
        """The pace allows the next step."""
        assert self._heard is not None, "there is a round"
        yield Compute(self._heard[0].round, 0.0)

    def compute(self, step: Compute) -> tuple[int, Tensors, float]:
        """A step for the round that was heard of when it began, or a newer one."""
        assert self._heard is not None, "there is a round"
        message, state = self._heard
        return message.round, *self._trainer.step(self._learner, message.round, state)

    def on_computed(self, result: tuple[int, Tensors, float], began: float, now: float) -> Iterable[Effect]:
        """Say where that led; go on where a newer round is open by now."""
        assert self._heard is not None, "there was a round"
        round_, tensors, loss = result
        self._busy, self._number = False, self._number + 1
        self._made = Contribution(round=round_, number=self._number), tensors
        yield events.Step(step=self._number, tokens=self._settings.tokens_per_step_of(self.name),
                          loss=round(loss, 6), position=round_, began=round(began, 6))
        if self._heard[0].round == round_:
            yield Send(*self._made)
        else:
            yield from self._begin(now)

    def on_saved(self, checkpoint: int, now: float) -> Iterable[Effect]:
        """There are no global checkpoints."""
        return ()

    def _begin(self, now: float) -> Iterable[Effect]:
        """A step for the newest round, when the pace allows it."""
        self._busy = True
        yield Timer("pace", self._pace.next(now))
