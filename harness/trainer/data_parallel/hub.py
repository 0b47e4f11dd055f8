"""The hub of data parallelism: averages the gradients of a group of peers, step after step, and keeps its checkpoints.

A state machine without I/O. What becomes of the group when somebody goes or comes is `data_parallel.py`'s and
`elastic_data_parallel.py`'s to say. Every step is told on the tape as a merge of one whole-model fragment, whose
version is the training step; where a group goes back to a checkpoint, `rolled_back` makes the steps after it void.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from diloco_chaos.harness.base.tensors import Tensors, all_finite, digest, same_shapes, shapes
from diloco_chaos.harness.record.storage.disk import Content
from diloco_chaos.harness.record.tape import events
from diloco_chaos.harness.trainer.algorithm.codec import CompressError
from diloco_chaos.harness.trainer.config.cluster_config import TrainerConfig
from diloco_chaos.harness.trainer.coordinator.sessions import LearnerSessions
from diloco_chaos.harness.trainer.coordinator.syncer_part import syncers
from diloco_chaos.harness.trainer.data_parallel.group_checkpoint import GroupCheckpoint
from diloco_chaos.harness.trainer.model.replica import VALUE
from diloco_chaos.harness.trainer.protocol.messages import (
    Average,
    Clock,
    Fetch,
    Gradient,
    Hello,
    Report,
    Resume,
    State,
    Welcome,
)
from diloco_chaos.harness.trainers.api.rounds import Part, merged
from diloco_chaos.harness.trainers.core.effects import AtFailpoint, Close, Effect, Save, Send, Working
from diloco_chaos.harness.trainers.core.roles import COORDINATOR
from diloco_chaos.harness.trainers.wire.messages import Message

_EPOCHS_PER_INCARNATION = 1_000_000  # so that no two groups of a run have the same number


@dataclass
class Member:
    """A peer that is connected."""

    name: str
    incarnation: int
    connection: int
    heard: float
    step: int
    """Where its state is: as of its hello, and of what it was sent since."""


@dataclass(frozen=True)
class Given:
    """A gradient of the step under way."""

    number: int
    """The peer's own count."""
    arrived: float
    gradient: Tensors
    """As it was read: what travels may be rounded."""


def averaged(gradients: Sequence[Tensors], tokens: Sequence[int] = ()) -> Tensors:
    """Their mean, in float32, each by the number of tokens that it is the mean of (all alike where nothing is said);
    in the order of their peers' names, for the same bits every time."""
    alike = len(set(tokens)) <= 1
    return {name: np.asarray(np.mean([gradient[name] for gradient in gradients], axis=0, dtype=np.float32) if alike else
                             np.average([gradient[name] for gradient in gradients], 0, tokens), np.float32)
            for name in gradients[0]}


class Hub(LearnerSessions[Member]):
    """See the module. Failure semantics: a gradient counts when it is complete and its peer is still there; nobody is
    ahead of anybody else, and whoever comes begins with what all the others have."""

    def __init__(self, config: TrainerConfig, saved: GroupCheckpoint, incarnation: int = 0) -> None:
        super().__init__(config, incarnation)
        self.saved = saved
        self.step, self.tokens = saved.step, saved.tokens
        self.group: dict[str, int] = {}
        """Names and incarnations of those whose gradients are averaged; they all stand at `step`."""
        self._epoch = incarnation * _EPOCHS_PER_INCARNATION
        self.training = False
        """All of the group are there, and work on the next step."""
        self._donor = ""  # who is asked for its state
        self._given: dict[str, Given] = {}
        self._opened = 0.0
        self._contributed: set[str] = set()
        self._newest = dict(saved.incarnations)
        self.damaged: set[str] = set()
        """Those whose last gradient or state was refused: they begin with what somebody else has."""
        self._up, self._down, self._shapes = config.gradient_codec, config.broadcast_codec, config.gradient_shapes

    def status(self) -> dict[str, object]:
        """Return what the hub knows of the training, for people who ask."""
        return {"steady": self.steady, "finished": self.finished, "step": self.step, "processed": self.tokens,
                "budget": self.config.budget_tokens, "training": self.training, "peers": sorted(self.group)}

    # -- what becomes of the group ---------------------------------------------------------------------------------

    @abstractmethod
    def came(self, member: Member, now: float) -> Iterable[Effect]:
        """Somebody is there (again); what that brings about."""

    @abstractmethod
    def went(self, member: Member, now: float) -> Iterable[Effect]:
        """Somebody of the group is gone; what that brings about."""

    def regroup(self, now: float) -> Iterable[Effect]:
        """The timer that a policy set for a new group."""
        return ()

    # -- inputs ----------------------------------------------------------------------------------------------------

    def start(self, now: float) -> Iterable[Effect]:
        """The first effects of a new process."""
        for name, why in self.saved.repaired.items():
            yield events.Repaired(file=name, reason=why)
        if not self.saved.resumed or self.saved.repaired:
            yield self.saved.commit()
        begins = events.Resumed if self.saved.resumed else events.Initial
        yield begins(versions=[self.step], digests=[digest(self.saved.state)], step=self.step, processed=self.tokens)
        if self.saved.resumed:
            yield events.RolledBack(step=self.step, processed=self.tokens, why="the hub was gone")
        yield self._next_heartbeat(now)

    def _lost(self, connection: int, reason: str, now: float) -> Iterable[Effect]:
        """A connection ended."""
        member = self._by_connection.pop(connection, None)
        if member is None or self.peers.get(member.name) is not member:
            return
        del self.peers[member.name]
        self._given.pop(member.name, None)
        self._donor = "" if member.name == self._donor else self._donor
        yield events.Lost(learner=member.name, incarnation=member.incarnation, reason=reason)
        if member.name in self.group:
            self.training = False
            yield from self.went(member, now)

    def _timer(self, key: str, now: float) -> Iterable[Effect]:
        """A timer fired: a heartbeat, or the time for a new group."""
        if key == "heartbeat":
            yield from self._heartbeat(now)
        elif not self.finished:
            yield from self.regroup(now)

    # -- peers come --------------------------------------------------------------------------------------------------

    def _take(self, peer: Member, message: Message, tensors: Tensors, now: float) -> Iterable[Effect]:
        if isinstance(message, Gradient):
            return self._gradient(peer, message, tensors, now)
        if isinstance(message, State):
            return self._state(peer, message, tensors, now)
        if isinstance(message, Report):
            return ()  # a sign of life
        return (events.Refused(learner=peer.name, reason=f"unexpected {message.type}"),)

    def _hello(self, connection: int, hello: Hello, now: float) -> Iterable[Effect]:
        if refusal := self._turn_away(connection, hello, self._newest.get(hello.node, -1)):
            yield from refusal
            return
        yield from self._replace(hello, now)
        self._newest[hello.node] = hello.incarnation
        member = Member(hello.node, hello.incarnation, connection, now, hello.step)
        self.peers[hello.node] = self._by_connection[connection] = member
        yield events.Hello(learner=member.name, incarnation=member.incarnation, fresh=hello.step == 0,
                           step=hello.step, versions=[min(self.step, self.saved.step)])
        yield Send(Welcome(step=self.step, tokens=self.tokens, position=self.step, steady=self.steady), to=connection)
        yield from self.came(member, now)

    def begin(self, names: Collection[str], now: float, state: GroupCheckpoint | None, have_it: Collection[str] = ()
              ) -> Iterable[Effect]:
        """These go on together: from a state that is sent to all but those who have it; None: all have it."""
        if state is not None and state.step < self.step:
            yield events.RolledBack(step=state.step, processed=state.tokens, why="the group broke")
        if state is not None:
            self.step, self.tokens = state.step, state.tokens
        self._epoch += 1
        self.group = {name: self.peers[name].incarnation for name in sorted(names)}
        self._given, self.training, self._donor, self._opened = {}, True, "", now
        yield events.Grouped(epoch=self._epoch, step=self.step, learners=sorted(self.group))
        for number, name in enumerate(self.group):
            resume = Resume(epoch=self._epoch, step=self.step, tokens=self.tokens, writes=number == 0)
            sent = {} if state is None or name in have_it else state.state
            self.peers[name].step = self.step
            if sent:
                self.damaged.discard(name)
            yield Send(resume, sent, to=self.peers[name].connection)

    def fetch(self, name: str) -> Iterable[Effect]:
        """Ask somebody who stands at `step` for its state; `fetched` goes on from there."""
        self._donor, self.training = name, False
        yield Send(Fetch(epoch=self._epoch), to=self.peers[name].connection)

    def fetched(self, state: GroupCheckpoint, now: float) -> Iterable[Effect]:
        """The state that was asked for is there."""
        return ()

    # -- steps -------------------------------------------------------------------------------------------------------

    def _gradient(self, member: Member, message: Gradient, tensors: Tensors, now: float) -> Iterable[Effect]:
        if message.epoch != self._epoch or message.step != self.step or not self.training or self.finished:
            return  # of a group that is no more
        gradient = self._read(tensors)
        if gradient is None:
            yield from self._refuse(member, "not a finite gradient of this model", now)
            return
        self._given[member.name] = Given(message.number, now, gradient)
        if self._given.keys() == self.group.keys():
            yield from self._average(now)

    def _refuse(self, member: Member, reason: str, now: float) -> Iterable[Effect]:
        """Its part in the group is over; what it has is not to be believed, and nobody waits for it."""
        self.damaged.add(member.name)
        yield events.Refused(learner=member.name, incarnation=member.incarnation, reason=reason)
        yield Close(member.connection, reason)
        yield from self.on_lost(member.connection, f"refused: {reason}", now)

    def _read(self, payload: Tensors) -> Tensors | None:
        """The gradient that this stands for; None: it is no finite one of this model."""
        try:
            gradient = self._up.unpack(payload, self._shapes)
        except CompressError:
            return None
        return gradient if shapes(gradient) == self._shapes and all_finite(gradient) else None

    def _average(self, now: float) -> Iterable[Effect]:
        names = sorted(self._given)
        parts = [self._given[name] for name in names]
        yield AtFailpoint("merge.before_commit")
        each, base = list(map(self.config.tokens_per_step_of, names)), self.step
        mean = self._down.send(averaged([part.gradient for part in parts], each), {}, key="")
        self.step, self.tokens = self.step + 1, self.tokens + sum(each)
        yield Working("merge", {"fragment": 0, "version": self.step}, {
            f"answer/{name}": part.gradient for name, part in zip(names, parts, strict=True)} | {"after": mean.read})
        yield merged(self.step, digest(mean.read), self.tokens, self._opened, now, [
            Part(name, self.group[name], part.number, tokens, part.arrived, digest(part.gradient))
            for name, part, tokens in zip(names, parts, each, strict=True)])
        yield AtFailpoint("commit.before_broadcast")
        self._given, self._opened = {}, now
        for name in self.group:
            self.peers[name].step = self.step
            yield Send(Average(step=base, tokens=self.tokens), mean.payload, to=self.peers[name].connection)
        self._contributed.update(names)
        if not self.steady and self._contributed.issuperset(self.config.starters):
            self.steady = True
            yield events.Steady(step=self.step, processed=self.tokens)
            yield from self._send_clock(now)

    def _state(self, member: Member, message: State, tensors: Tensors, now: float) -> Iterable[Effect]:
        """A checkpoint, the last of which ends the run; or what was asked for because somebody new shall begin with it.
        """
        if message.epoch != self._epoch or self.finished:
            return
        old = {key: array for key, array in self.saved.state.items() if key.startswith(VALUE)}
        values = {key: array for key, array in tensors.items() if key.startswith(VALUE)}
        if not same_shapes(old, values) or not all_finite(tensors) or digest(tensors) != message.digest:
            yield from self._refuse(member, "not a state of this model", now)
            return
        if message.step > self.step or message.tokens > self.tokens:
            yield from self._refuse(member, f"impossible state: step {message.step} of {self.step}, "
                                            f"{message.tokens} tokens of {self.tokens}", now)
            return
        state = GroupCheckpoint(message.step, message.tokens, tensors, dict(self._newest))
        if member.name == self._donor and message.step == self.step:
            yield from self.fetched(state, now)
            return
        over = message.tokens >= self.config.budget_tokens
        if message.step > self.saved.step:
            before, self.saved = self.saved.step, state
            yield state.commit()
            if self._checkpoints.due(before, state.step) and not over:
                yield from self._checkpoint(state)
        if over:
            yield from self._finish(now, step=self.step, processed=self.tokens, merged=self.tokens)

    def _checkpoint(self, state: GroupCheckpoint) -> Iterable[Effect]:
        """Save this state as a checkpoint of the whole run: no other node holds state that is not in it."""
        number, effects = self._checkpoints.begin(state.step, [COORDINATOR])
        yield from effects
        yield Save(number, *syncers([Content(state.state, state.meta())]), keep=self._checkpoints.whole)

    def _clock(self, now: float) -> Clock:
        return Clock(step=self.step, tokens=self.tokens, steady=self.steady, sent=now)
