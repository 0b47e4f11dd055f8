"""A recorded run of the quadratic model whose gradients are averaged, computed again from its event log and the
formulas alone.

The log says who was in which group, from which step it went on, and whose gradients a step was made of. Every gradient,
every mean, and every state that a worker says it holds is computed here, and held against the digests that the log has.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from diloco_chaos.harness.base.lines import line
from diloco_chaos.harness.record.tape.events import Event, Grouped, Initial, Merge, Replica, Resumed, RolledBack, Step
from diloco_chaos.harness.trainer.reference.algorithm import digest, mean_gradient
from diloco_chaos.harness.trainer.reference.problem import SHAPES, Tensors, Vector, Weights, initial
from diloco_chaos.harness.trainer.reference.recompute import LOSS, MOST
from diloco_chaos.harness.trainer.reference.rules import ReferenceRules
from diloco_chaos.harness.trainer.reference.schedule import RateSchedule
from diloco_chaos.harness.trainers.api.trainer import Difference, Recorded, Replay
from diloco_chaos.harness.trainers.core.roles import COORDINATOR


class _Recomputation:
    """See the module."""

    def __init__(self, rules: ReferenceRules, schedule: RateSchedule, recorded: Recorded) -> None:
        self._rules, self._schedule, self._tape = rules, schedule, recorded.tape
        self._workers = {name: Weights(rules.seed, index) for index, name in enumerate(rules.learners)}
        self._tokens = {name: batch * schedule.context
                        for name, batch in zip(rules.learners, schedule.batches, strict=True)}
        self._held: dict[tuple[int, int], list[Replica]] = defaultdict(list)
        """(epoch of a group, step) -> what its members say they hold there."""
        for event in self._tape.of(Replica):
            self._held[event.epoch, event.step].append(event)
        self._steps = {(*process, event.step): event for process, events in self._tape.by_process(Step).items()
                       for event in events if isinstance(event, Step)}
        first = next(iter(self._workers.values()))
        first.put(initial(rules.seed))
        self._line: dict[int, tuple[Vector, int]] = {0: (first.flat.copy(), 0)}
        """Training step -> the weights there and the tokens before it; of steps that are not void."""
        self._step = 0
        self._epoch = -1
        self._replay = Replay()
        self._wrong: list[Difference] = []

    def done(self) -> Replay:
        """Recompute as far as the log goes, or to the first difference, and return what came of it."""
        for event in self._tape.of(Initial, Resumed, RolledBack, Grouped, Merge, node=COORDINATOR):
            if isinstance(event, Merge):
                self._merged(event)
            elif isinstance(event, Initial | Resumed | RolledBack | Grouped):
                self._goes_on(event, event.step)
            if self._wrong or self._replay.missing or self._replay.versions == MOST:
                break
        self._replay.difference = min(self._wrong, key=lambda difference: difference.t, default=None)
        return self._replay

    def _goes_on(self, event: Event, step: int) -> None:
        """All that comes after this step is void."""
        if step not in self._line:
            if isinstance(event, Grouped):
                self._same(event, "the step that the group goes on from", f"no more than {self._step}", step)
            else:
                self._replay.missing = (f"training went on from step {step}, and the event log tells of none after "
                                        f"{self._step}")
            return
        self._step = step
        self._line = {number: state for number, state in self._line.items() if number <= step}
        if isinstance(event, Grouped):
            self._epoch = event.epoch
            self._members_hold()
        elif isinstance(event, Initial | Resumed):
            self._same(event, f"what it begins with at step {step}", digest(self._state()), event.digests[0])

    def _merged(self, event: Merge) -> None:
        if event.version != self._step + 1:
            self._replay.missing = f"the event log tells of step {event.version} after step {self._step}"
            return
        values, tokens = self._line[self._step]
        gradients: list[Tensors] = []
        each = [self._tokens.get(part.learner, 0) for part in event.contributions]
        for part in event.contributions:
            if (worker := self._workers.get(part.learner)) is None:
                self._same(event, "who gave a gradient", "nobody of the cluster", part.learner)
                return
            own, _ = self._rules.gradients.sent({"gradient": worker.slope(values, self._step)}, {}, "")
            gradients.append(own)
            self._same(event, f"the gradient of {part.learner} for step {event.version}", digest(own), part.digest)
            step = self._steps.get((part.learner, part.incarnation, part.last))
            if step is not None:
                self._loss(step, worker.loss(values))
        mean, _ = self._rules.broadcasts.sent(mean_gradient(gradients, each), {}, "")
        self._same(event, f"the mean gradient of step {event.version}", digest(mean), event.digest)
        rate = self._schedule.inner_rate(np.array([tokens], np.float64))[0]
        tokens += sum(each)
        self._same(event, f"tokens processed by step {event.version}", tokens, event.processed)
        self._step += 1
        self._line[self._step] = (values - np.float32(rate) * mean["gradient"], tokens)
        self._replay.versions += 1
        self._members_hold()

    def _loss(self, step: Step, loss: float) -> None:
        self._replay.steps += 1
        if step.loss is None or not abs(loss - step.loss) <= LOSS * max(1.0, abs(loss)):
            self._same(step, "its loss", f"{loss:.4f}", step.loss)

    def _members_hold(self) -> None:
        """What the members of the group say they hold at this step is what training came to."""
        if told := self._held.pop((self._epoch, self._step), []):
            computed = digest(self._state())
            for event in told:
                self._same(event, f"what it holds at step {event.step}", computed, event.digest)

    def _state(self) -> Tensors:
        flat = self._line[self._step][0]
        ends = np.cumsum([int(np.prod(shape)) for shape in SHAPES.values()])
        return {f"value/{name}": piece.reshape(shape)
                for (name, shape), piece in zip(SHAPES.items(), np.split(flat, ends[:-1]), strict=True)}

    def _same(self, event: Event, what: str, computed: object, recorded: object) -> None:
        if computed != recorded:
            self._wrong.append(Difference(event.t, line(
                f"{event.node}.{event.inc}, {event.event} at ", event.t,
                f": {what} was {recorded}, and the formulas give {computed}")))


def recomputed(rules: ReferenceRules, schedule: RateSchedule, recorded: Recorded) -> Replay:
    """Compute every gradient, every mean and every worker's state again."""
    with np.errstate(all="ignore"):  # a log may come from anybody, and say any number
        return _Recomputation(rules, schedule, recorded).done()
