"""A data-parallel peer: computes the gradient of its batch, and takes the optimizer's step with everybody's mean.

A state machine without I/O. It stands still until the hub has said with which group it goes on, and from where.
"""

from __future__ import annotations

from collections.abc import Iterable

from diloco_chaos.harness.base.tensors import Tensors, digest
from diloco_chaos.harness.record.tape import events
from diloco_chaos.harness.trainer.config.cluster_config import TrainerConfig
from diloco_chaos.harness.trainer.config.schedule import learning_rate, snapshot_marks
from diloco_chaos.harness.trainer.model.inner_sample import InnerSample
from diloco_chaos.harness.trainer.model.replica import Replica, start
from diloco_chaos.harness.trainer.protocol.messages import (
    MESSAGES,
    Average,
    Clock,
    Fetch,
    Finish,
    Gradient,
    Hello,
    Report,
    Resume,
    State,
)
from diloco_chaos.harness.trainers.core.effects import Close, Compute, Effect, Send, Snapshot, Stop, Timer
from diloco_chaos.harness.trainers.core.pacer import Metronome
from diloco_chaos.harness.trainers.wire.messages import Farewell, Message

_DIGEST_EVERY = 20
"""Steps after which a worker says what it holds, where no checkpoints are made."""


class DataParallelWorker:
    """See the module. Failure semantics: a lost connection ends its part in the group; whatever it computes meanwhile
    is void. It keeps what it has, and tells where that stands when it is back."""

    messages = MESSAGES

    def __init__(self, config: TrainerConfig, name: str, incarnation: int, token: str, replica: Replica) -> None:
        self.config, self.name, self.incarnation, self._token, self.replica = config, name, incarnation, token, replica
        self.heartbeat_timeout = config.heartbeat_timeout
        self._sample = InnerSample(replica)
        self.step = 0
        """Training step that its state is at."""
        self.number = 0
        """Own inner steps, void ones included."""
        self.steady = False
        self._tokens = 0
        self._epoch: int | None = None  # of the group; None: it stands still
        self._computing: int | None = None  # the epoch that it computes for
        self._waiting = False  # for its pace
        self._next: tuple[Resume, Tensors] | None = None  # what came while it was computing
        self._writes = False
        self._marks: list[tuple[int, float]] = []
        self._pace = Metronome(config.step_time_of(name), config.variance, f"{config.seed}/{name}/{incarnation}")
        self._names = tuple(config.spec.shapes())
        self._per_step = config.tokens_per_step_of(name)
        self._up, self._down, self._shapes = config.gradient_codec, config.broadcast_codec, config.gradient_shapes
        self._done = False

    def status(self) -> dict[str, object]:
        """Return what the worker knows of the training, for people who ask."""
        return {"steady": self.steady, "finished": self._done, "step": self.step, "in_group": self._epoch is not None}

    def on_connected(self, now: float) -> Iterable[Effect]:
        """A new connection stands."""
        yield Send(Hello(token=self._token, node=self.name, incarnation=self.incarnation, step=self.step,
                         tokens=self.number * self._per_step, position=self.step, versions=[], steps=[]))
        yield self._sign(now)

    def on_lost(self, reason: str, now: float) -> Iterable[Effect]:
        """The connection ended; the driver makes a new one."""
        yield events.Disconnected(reason=reason, step=self.number)
        self._epoch, self._next, self._waiting = None, None, False

    def on_message(self, message: Message, tensors: Tensors, now: float) -> Iterable[Effect]:
        """A whole frame arrived."""
        if isinstance(message, Clock):
            self.steady = message.steady
        elif isinstance(message, Resume):
            if self._computing is None:
                yield from self._resume(message, tensors, now)
            else:
                self._epoch, self._next = message.epoch, (message, tensors)
        elif isinstance(message, Average) and self._epoch is not None:
            yield from self._sample.before_receipt()
            self.replica.apply(self._down.unpack(tensors, self._shapes), learning_rate(self.config, self._tokens))
            self.step, self._tokens = message.step + 1, message.tokens
            yield from self._sample.taken(self.step)
            yield from self._snapshots()
            over, every = self._tokens >= self.config.budget_tokens, self.config.checkpoint_every
            if over or self.step % (every or _DIGEST_EVERY) == 0:
                yield self._replica(self._epoch)
                if self._writes and every and not over:
                    yield self._state(self._epoch)
            yield from self._go_on(now)
        elif isinstance(message, Fetch):
            yield self._state(message.epoch)
        elif isinstance(message, Finish):
            self._done = True
            yield events.Finished(step=self.number, tokens=self.number * self._per_step)
            yield Send(Farewell())
            yield Stop("finished")

    def compute(self, step: Compute) -> tuple[float, Tensors]:
        """The loss of a batch, and its gradient."""
        return self.replica.gradient(step.position)

    def on_computed(self, result: tuple[float, Tensors], began: float, now: float) -> Iterable[Effect]:
        """The gradient that `Compute` asked for is there; of a group that is no more it is void."""
        loss, gradient = result
        epoch, self._computing = self._computing, None
        if self._done or epoch is None:
            return
        self.number += 1
        yield events.Step(step=self.number, tokens=self._per_step, loss=round(loss, 4), position=self.step,
                          began=round(began, 6))
        if self._next is not None:
            (message, tensors), self._next = self._next, None
            yield from self._resume(message, tensors, now)
        elif epoch == self._epoch:
            yield Send(Gradient(epoch=epoch, step=self.step, number=self.number), self._up.pack(gradient, key=""),
                       half="upload.half", sent=events.Upload(round=self.step, fragment=0))

    def on_timer(self, key: str, now: float) -> Iterable[Effect]:
        """The pace allows the next step; or it is time for a sign of life."""
        if key == "sign":
            if not self._done:
                yield Send(Report(step=self.number, tokens=0, position=self.step, fragments=[]))
                yield self._sign(now)
        elif self._waiting and self._epoch is not None and not self._done:
            yield self._compute(self._epoch)

    def on_saved(self, checkpoint: int, now: float) -> Iterable[Effect]:
        """Peers save no parts: the hub has its checkpoints."""
        return ()

    def _sign(self, now: float) -> Timer:
        return Timer("sign", now + self.config.sign_s)

    def _resume(self, message: Resume, tensors: Tensors, now: float) -> Iterable[Effect]:
        if tensors:
            self.replica.load(tensors)
        elif message.step != self.step:
            yield events.Refused(reason=f"told to go on at step {message.step} with the state of {self.step}")
            yield Close(reason="it has another state")
            return
        self._sample.forget()
        self._epoch, self.step, self._tokens, self._writes = message.epoch, message.step, message.tokens, message.writes
        marks = snapshot_marks(self.config)
        passed = [mark for mark in marks if mark[1] <= self._tokens]
        self._marks = passed[-1:] + marks[len(passed):]  # who wrote before may have died before it wrote the last one
        yield events.Ready(step=self.number, position=self.step)
        yield self._replica(message.epoch)
        yield from self._snapshots()
        yield from self._go_on(now)

    def _go_on(self, now: float) -> Iterable[Effect]:
        """Begin the next gradient, now or when the pace allows; where none is left, tell the run's last state."""
        assert self._epoch is not None, "it has a group"
        if self._tokens >= self.config.budget_tokens:
            if self._writes:
                yield self._state(self._epoch)
            return
        at = self._pace.next(now)
        self._waiting = at > now
        yield Timer("pace", at) if self._waiting else self._compute(self._epoch)

    def _compute(self, epoch: int) -> Compute:
        self._computing, self._waiting = epoch, False
        return Compute(self.step, 0.0)

    def _replica(self, epoch: int) -> events.Replica:
        return events.Replica(epoch=epoch, step=self.step, digest=digest(self.replica.state()))

    def _state(self, epoch: int) -> Send:
        """Return a message with the state that the worker has, or begins with as soon as it has computed what it still
        computes."""
        state, step, tokens = self.replica.state(), self.step, self._tokens
        if self._next is not None:
            message, given = self._next
            state, step, tokens = given or state, message.step, message.tokens
        return Send(State(epoch=epoch, step=step, tokens=tokens, digest=digest(state)), state)

    def _snapshots(self) -> Iterable[Effect]:
        while self._writes and self._marks and self._tokens >= self._marks[0][1]:
            number, _ = self._marks.pop(0)
            begins = number == 0 and self.config.mode == "synchronous"  # others begin here: with its moments, too
            yield Snapshot(start(self.replica.state()) if begins else self.replica.read(self._names),
                           {"number": number, "processed": self._tokens, "merged": self._tokens, "step": self.step})
