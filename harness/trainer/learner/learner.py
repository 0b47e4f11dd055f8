"""A learner: trains on its own shard, answers the syncer at step boundaries, never waits for the network.

A state machine without I/O (arXiv 2604.21428, the decoupled learner). While an inner step is under way what arrives is
kept for the step's end; while the learner waits out its pace it stands at a boundary and answers at once.

Theory of operation
-------------------
A learner *lacks* fragments, *trains*, or *stands*. It lacks some after its start and after a reset: it computes nothing
until it holds a version of each (`_begin`). It stands only in modes that wait for a merge, when it has made all steps
that it may make without one (`_next_step`). Else it trains: `Compute` begins a step, `on_computed` ends it.

The weights change at two moments only: in a step, and at a boundary between two steps. While a step is under way what
arrives waits in `_inbox`; at the boundary it is taken in this order, which the meaning of the counts depends on:

1. what the learner is told (`_TOLD`: broadcasts, donations, a reset) is applied;
2. the step is reported, with the counts that follow from that;
3. what it is asked for (`_ASKED`: an outer gradient, a donation, a part of a checkpoint) is answered.

What came behind a request for a checkpoint is taken after it: it must not be in the learner's part of that checkpoint.

`held` has, for each fragment, the version that the learner began from and the steps made since. An outer gradient is
base minus current, with those steps: it is cumulative, so that a lost one costs nothing and a repeated one is seen. A
broadcast replaces the base and begins a new count; steps made between the answer and the broadcast are carried on top
or dropped (`_receive`).

Nothing here waits for the network. A connection that is lost makes void what was asked for on it; training goes on with
the last clock that was heard.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict

from diloco_chaos.harness.base import tensors as arrays
from diloco_chaos.harness.base.tensors import Tensors
from diloco_chaos.harness.record.storage.disk import Content
from diloco_chaos.harness.record.tape import events
from diloco_chaos.harness.record.tape.events import Event
from diloco_chaos.harness.trainer.config.cluster_config import TrainerConfig
from diloco_chaos.harness.trainer.config.schedule import learning_rate
from diloco_chaos.harness.trainer.learner.fragment_view import Held, packed, unpacked
from diloco_chaos.harness.trainer.model.inner_sample import InnerSample
from diloco_chaos.harness.trainer.model.replica import Replica
from diloco_chaos.harness.trainer.protocol.messages import (
    MESSAGES,
    Broadcast,
    CheckpointAck,
    CheckpointRequest,
    Clock,
    Donate,
    Donation,
    Finish,
    Hello,
    OuterGradient,
    Report,
    Request,
    Reset,
    Welcome,
)
from diloco_chaos.harness.trainers.core.effects import Compute, Effect, Save, Send, Stop, Timer, Working
from diloco_chaos.harness.trainers.core.memory import Corruption
from diloco_chaos.harness.trainers.core.pacer import Metronome
from diloco_chaos.harness.trainers.wire.messages import Farewell, Message

_TOLD, _ASKED = (Broadcast, Donation, Reset), (Request, Donate, CheckpointRequest)
"""What is taken in before a step is reported, and what is answered after that."""
_REPLICA = "replica/"
_MOST_SKIPPED = 3
"""Steps in a row that come to nothing: then it is not the data, though the weights are finite."""


class Learner:
    """See the module. Failure semantics: a lost connection costs nothing but the exchange under way; training goes on
    with the last known clock, and every report and answer is cumulative."""

    messages = MESSAGES

    def __init__(self, config: TrainerConfig, name: str, incarnation: int, token: str, replica: Replica) -> None:
        self.config, self.heartbeat_timeout = config, config.heartbeat_timeout
        self.name, self.incarnation, self._token = name, incarnation, token
        self.replica = replica
        if incarnation or name not in config.starters:
            replica.load({})  # nothing but fresh moments: those of the warm start are of the time before it
        self._sample = InnerSample(replica)
        self.table = config.fragment_table()
        self._gradients, self._broadcasts = config.gradient_codec, config.broadcast_codec
        self._per_step, self._blocking = config.tokens_per_step_of(name), config.blocking
        self._patience = config.exchange.patience
        self.held = [Held() for _ in self.table]
        self.step = 0
        self.position = 0
        self.tokens = 0
        """Processed by this incarnation."""
        self.steady = False
        """The syncer said that the cluster is steady."""
        self._global_tokens = 0
        self._started = False
        self._computing = False
        self._batch, self._rate = 0, 0.0  # of the step under way
        self._skipped = 0  # steps in a row whose loss or gradient was not finite
        self._stands = False  # blocking: it has no more steps to make before something is merged
        self._inbox: list[tuple[Message, Tensors]] = []
        self._pace = Metronome(config.step_time_of(name), config.variance, f"{config.seed}/{name}/{incarnation}")
        self._stepped: float | None = None  # when the last step was done; None: the next one's time is not known
        self._done = False
        self._clock: tuple[float, float] | None = None  # the newest clock: when it was sent, and when it came
        self._receipts: list[tuple[float, float]] = []  # broadcasts since the last report: round closed, when they came
        self._resumed = False  # it goes on from a checkpoint, and nobody was told yet

    def status(self) -> dict[str, object]:
        """Return what the learner knows of the training, for people who ask."""
        return {"steady": self.steady, "finished": self._done, "step": self.step, "tokens": self.tokens,
                "versions": [held.version for held in self.held]}

    def on_connected(self, now: float) -> Iterable[Effect]:
        """A new connection stands: introduce yourself."""
        if self._resumed:
            yield from self.on_lost("the run goes on from a checkpoint", now)
            self._resumed = False
        self._inbox = [(message, tensors) for message, tensors in self._inbox if not isinstance(message, _ASKED)]
        self._stepped = None  # a step that began before it may have taken longer than this connection stands
        yield Send(Hello(token=self._token, node=self.name, incarnation=self.incarnation, step=self.step,
                         tokens=self.tokens, position=self.position, versions=[held.version for held in self.held],
                         steps=[held.steps for held in self.held]))

    def on_lost(self, reason: str, now: float) -> Iterable[Effect]:
        """The connection ended; the driver makes a new one. What was asked on the old one is void."""
        yield events.Disconnected(reason=reason, step=self.step)
        for held in self.held:
            held.answered, held.owed = None, {}
        self._clock, self._receipts = None, []

    def on_message(self, message: Message, tensors: Tensors, now: float) -> Iterable[Effect]:
        """A whole frame arrived."""
        if isinstance(message, Clock):
            self._global_tokens = max(self._global_tokens, message.tokens)
            self.steady = message.steady
            self._clock = (message.sent, now)
        elif isinstance(message, Welcome):
            self._global_tokens = max(self._global_tokens, message.tokens)
            self.position = max(self.position, message.position)
            if self._has_all:
                yield from self._begin(now)
            elif not self._started and not self.tokens:
                self.step = message.step
        elif isinstance(message, Finish):
            self._done = True
            yield events.Finished(step=self.step, tokens=self.tokens)
            yield Send(Farewell())
            yield Stop("finished")
        elif isinstance(message, (*_TOLD, *_ASKED)):
            if isinstance(message, Broadcast) and message.closed:
                self._receipts.append((message.closed, now))
            if self._computing:
                self._inbox.append((message, tensors))
            else:
                yield from self._at_boundary([(message, tensors)], now)

    def compute(self, step: Compute) -> float:
        """An inner step; its loss."""
        return self.replica.train(step.position, step.lr)

    def on_computed(self, loss: float, began: float, now: float) -> Iterable[Effect]:
        """The inner step that `Compute` asked for is done; with a loss that is not finite it was not taken."""
        self._computing = False
        if self._done:
            return
        if math.isfinite(loss):
            yield self._count(loss, began)
            yield from self._sample.taken(self.step)
        else:
            yield from self._skip(began, now)
        inbox, self._inbox = self._inbox, []
        border = next((index for index, (message, _) in enumerate(inbox) if isinstance(message, CheckpointRequest)),
                      len(inbox))
        inbox, behind = inbox[:border], inbox[border:]  # what came after it must not be part of a checkpoint
        if inbox:
            yield from self._at_boundary([item for item in inbox if isinstance(item[0], _TOLD)], now, resume=False)
        took, self._stepped = 0.0 if self._stepped is None else now - self._stepped, now
        yield self._report(now, took)
        if inbox:
            yield from self._at_boundary([item for item in inbox if isinstance(item[0], _ASKED)], now, resume=False)
        if behind:
            yield from self._at_boundary(behind, now, resume=False)
        yield from self._next_step(now)

    def _count(self, loss: float, began: float) -> Event:
        """A step more."""
        self._skipped = 0
        self.step += 1
        self.position = max(self.position, self._batch + 1)  # it may have been given a later lease meanwhile
        self.tokens += self._per_step
        self._global_tokens += self._per_step  # until the syncer says more
        for held in self.held:
            held.steps += 1
        return events.Step(step=self.step, tokens=self._per_step, loss=round(loss, 4), lr=self._rate,
                           position=self._batch, began=round(began, 6))

    def _skip(self, began: float, now: float) -> Iterable[Effect]:
        """A batch that came to nothing: it counts for nothing, either. Where that is not the data's fault the learner
        drops all that it has; its next report says so, and the syncer sends it everything."""
        self._skipped += 1
        self.position = max(self.position, self._batch + 1)
        finite = arrays.all_finite(self.replica.read(tuple(self.config.spec.shapes())))
        reason = "loss or gradient not finite" if finite else "weights not finite"
        yield events.Skipped(step=self.step, position=self._batch, lr=self._rate, began=round(began, 6),
                             reason=reason)
        if not finite or self._skipped >= _MOST_SKIPPED:
            yield from self._reset(f"{self._skipped} steps in a row came to nothing" if finite else reason, now)

    def _reset(self, reason: str, now: float) -> Iterable[Effect]:
        """Be as a new process that has still to be told everything, but for its counts."""
        self.replica.load({})
        self._sample.forget()
        self.held = [Held() for _ in self.table]
        self._started, self._stands, self._skipped = False, False, 0
        yield events.Reset(step=self.step, reason=reason)
        yield Timer("stand", now + self.config.sign_s)

    def corrupt(self, corruption: Corruption) -> Iterable[events.Corrupted]:
        """Memory fails."""
        self.replica.damage(corruption.part, corruption.apply)
        yield events.Corrupted(step=self.step, **asdict(corruption))

    def on_timer(self, key: str, now: float) -> Iterable[Effect]:
        """The pace allows the next step; or it stands, and gives a sign of life."""
        if key == "stand":
            if (self._stands or not self._started) and not self._done:
                yield self._report(now)
                yield Timer("stand", now + self.config.sign_s)
        elif self._started and not self._computing and not self._done:
            yield self._compute()

    def _report(self, now: float, took: float = 0.0) -> Send:
        clock, self._clock = self._clock, None
        receipts, self._receipts = self._receipts, []
        return Send(Report(
            step=self.step, tokens=self.tokens, position=self.position, took=took,
            fragments=[(held.version, held.steps, held.steps * self._per_step) for held in self.held],
            clock=clock and (clock[0], now - clock[1]),
            received=[(closed, now - came) for closed, came in receipts]))

    def _at_boundary(self, items: list[tuple[Message, Tensors]], now: float,
                     resume: bool = True) -> Iterable[Effect]:
        for message, tensors in items:
            if isinstance(message, Broadcast):
                yield from self._receive(message, tensors)
            elif isinstance(message, Donation):
                yield from self._take_over(message, tensors)
            elif isinstance(message, Request):
                yield from self._give(message)
            elif isinstance(message, Donate):
                yield from self._donate(message)
            elif isinstance(message, CheckpointRequest):
                yield from self._save(message)
            elif isinstance(message, Reset):
                yield from self._reset(message.reason, now)
        if not self._started and self._has_all:
            yield from self._begin(now, resume)
        elif resume and self._stands:
            yield from self._next_step(now)

    @property
    def _has_all(self) -> bool:
        return all(held.base is not None for held in self.held)

    def _begin(self, now: float, resume: bool = True) -> Iterable[Effect]:
        """It has all that it takes to train, if it does not do so already."""
        if not self._started:
            self._started = True
            yield events.Ready(step=self.step, position=self.position)
            if resume:
                yield from self._next_step(now)

    def _next_step(self, now: float) -> Iterable[Effect]:
        """Begin the next inner step, now or when the pace allows."""
        if not self._started or self._computing or self._done:
            return
        self._stands = self._blocking and any(held.steps >= self._patience for held in self.held)
        if self._stands:
            self._stepped = None  # how long it waits is no step's time
            yield Timer("stand", now + self.config.sign_s)
            return
        at = self._pace.next(now)
        if at > now:
            yield Timer("pace", at)
        else:
            yield self._compute()

    def _compute(self) -> Compute:
        self._computing = True
        self._batch, self._rate = self.position, learning_rate(self.config, self._global_tokens)
        return Compute(self._batch, self._rate)

    def _give(self, request: Request) -> Iterable[Effect]:
        """Answer with base minus current, and the counters at this moment."""
        if request.fragment >= len(self.held):
            return
        held, fragment = self.held[request.fragment], self.table[request.fragment]
        if held.base is None or held.steps == 0:
            yield Send(OuterGradient(round=request.round, fragment=request.fragment, base_version=max(held.version, 0),
                                     first_step=0, last_step=0, steps=0, tokens=0, digest=""))
            return
        current = self.replica.read(fragment.names)
        payload, delta, held.owed = self._gradients.send(
            arrays.subtract(held.base, current), held.error,
            f"{self.config.seed}/{self.name}/{self.incarnation}/{fragment.index}/{self.step}")
        yield Working("outer_gradient", {"fragment": fragment.index, "step": self.step}, {
            "base": held.base, "now": current, "error": held.error})
        held.answered, held.answered_steps, held.answered_at = current, held.steps, self.step
        answer = OuterGradient(round=request.round, fragment=request.fragment, base_version=held.version,
                               first_step=self.step - held.steps + 1, last_step=self.step, steps=held.steps,
                               tokens=held.steps * self._per_step, digest=arrays.digest(delta))
        yield events.OuterGradient(round=answer.round, fragment=answer.fragment, base=answer.base_version,
                                   first=answer.first_step, step=answer.last_step, steps=answer.steps,
                                   tokens=answer.tokens, digest=answer.digest)
        yield Send(answer, payload, half="upload.half",
                   sent=events.Upload(round=request.round, fragment=request.fragment))

    def _donate(self, asked: Donate) -> Iterable[Effect]:
        """Hand over what was received of every fragment; who lacks one has nothing to give."""
        bases = [held.base for held in self.held if held.base is not None]
        if len(bases) < len(self.held):
            return
        donation = Donation(learner=asked.learner, versions=[held.version for held in self.held],
                            digests=list(map(arrays.digest, bases)))
        yield events.Donated(learner=asked.learner, versions=donation.versions)
        yield Send(donation, {name: array for base in bases for name, array in base.items()}, half="donate.half")

    def _take_over(self, donation: Donation, tensors: Tensors) -> Iterable[Effect]:
        """Begin with what somebody else holds, where nothing newer is there already."""
        for fragment, version, digest in zip(self.table, donation.versions, donation.digests, strict=False):
            if version > self.held[fragment.index].version:
                value = {name: tensors[name] for name in fragment.names if name in tensors}
                yield from self._receive(Broadcast(fragment=fragment.index, version=version, digest=digest), value)

    # -- checkpoints -------------------------------------------------------------------------------------------------

    def _save(self, asked: CheckpointRequest) -> Iterable[Effect]:
        """Everything that training goes on from, as of now."""
        tensors, fragments = packed(self.held)
        tensors |= arrays.add_prefix(_REPLICA, self.replica.state())
        yield from self._sample.tell()
        yield events.CheckpointPart(checkpoint=asked.number, step=self.step)
        yield Save(asked.number, tensors, {
            "incarnation": self.incarnation, "step": self.step, "position": self.position, "tokens": self.tokens,
            "fragments": fragments})

    def on_saved(self, checkpoint: int, now: float) -> Iterable[Effect]:
        """What was to be saved is on stable storage."""
        yield Send(CheckpointAck(number=checkpoint))

    def restore(self, part: Content) -> None:
        """Be what a learner was at a checkpoint; what it had under way is void, as after a connection that broke."""
        self.replica.load(arrays.strip_prefix(_REPLICA, part.tensors))
        self.step, self.position, self.tokens = (int(part.meta[name]) for name in ("step", "position", "tokens"))
        self.held = unpacked(part.tensors, part.meta["fragments"])
        self._resumed = True

    def _receive(self, message: Broadcast, payload: Tensors) -> Iterable[Effect]:
        """Apply a fragment's new value; steps made since the answer are carried on top of it, or dropped."""
        if message.fragment >= len(self.held):
            return
        held, fragment = self.held[message.fragment], self.table[message.fragment]
        if message.version < held.version:
            yield events.Refused(fragment=message.fragment, version=message.version,
                                 reason="older than what is held")
            return
        tensors = held.decoded(message, payload, self._broadcasts)
        if arrays.digest(tensors) != message.digest or tuple(sorted(tensors)) != fragment.names:
            yield events.Refused(fragment=message.fragment, version=message.version, reason="wrong digest")
            return
        yield from self._sample.before_receipt()
        carried = 0
        value = current = tensors
        if self.config.on_receipt == "carry" and held.answered is not None and held.base is not None:
            carried = held.steps - held.answered_steps
            current = self.replica.read(fragment.names)
            value = arrays.add(tensors, arrays.subtract(current, held.answered))
        self.replica.write(tensors)
        applied = arrays.digest(self.replica.read(fragment.names))  # of what is there now, not of what was sent
        if carried and held.answered is not None:
            self.replica.write(value)
            yield Working("received", {"fragment": message.fragment, "version": message.version, "step": self.step}, {
                "told": tensors, "answered": held.answered, "now": current,
                "after": self.replica.read(fragment.names)})
        dropped = held.steps - carried
        arrived = held.answered is not None and message.merged == held.answered_at
        self.held[message.fragment] = Held(message.version, arrays.copy(tensors), carried,
                                           error=held.owed if arrived else held.error)
        yield events.Received(fragment=message.fragment, version=message.version, step=self.step, digest=applied,
                              closed=dropped, carried=carried, arrived=arrived)
