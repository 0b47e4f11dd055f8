"""The inner steps that learners told of, computed again from the event log and the plan.

A learner tells of few steps, at few coordinates, what AdamW had before and after (event `inner_step`). Nothing of it is
believed: the rate is the one of its `step`, which is held against the schedule elsewhere, or the schedule's own where
gradients are averaged; how many steps AdamW has taken follows from the plan and the `step`s; the batch is cut from the
corpus again; and what a step begins with is what the one before came to, over receipts and restored checkpoints.
"""

from __future__ import annotations

import base64
import binascii
import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from diloco_chaos.harness.base.lines import line
from diloco_chaos.harness.record.storage.disk import file_digest
from diloco_chaos.harness.record.tape.events import (
    Corrupted,
    Event,
    Initial,
    InnerStep,
    Merge,
    Ready,
    Received,
    Reset,
    Resumed,
    RolledBack,
    Step,
)
from diloco_chaos.harness.trainer.reference import adamw
from diloco_chaos.harness.trainer.reference.adamw import State
from diloco_chaos.harness.trainer.reference.batches import Batches
from diloco_chaos.harness.trainer.reference.schedule import RateSchedule
from diloco_chaos.harness.trainers.api.trainer import Difference, InnerSteps, Recorded
from diloco_chaos.harness.trainers.core.roles import COORDINATOR

_ROWS, _COORDINATES = 7, 8
_SILENT = 4
"""Steps of a process that tells of none, though others do, after which it is no accident."""


@dataclass(frozen=True)
class InnerRules:
    """What of a scenario's cluster decides how inner steps are taken."""

    learners: Sequence[str]
    starters: Collection[str]
    """Those that are there from the beginning."""
    seed: int
    averages: bool
    """Gradients are averaged: all take the same steps."""
    schedule: RateSchedule


@dataclass(frozen=True)
class _Told:
    """One step that was told of."""

    event: InnerStep
    before: State
    gradient: adamw.Numbers
    after: State

    @classmethod
    def of(cls, event: InnerStep) -> _Told | None:
        """None: what it tells can't be read."""
        try:
            values = np.frombuffer(base64.b64decode(event.values, validate=True), "<f4").astype(np.float64)
        except (binascii.Error, ValueError):
            return None
        if values.size != _ROWS * _COORDINATES:
            return None
        weights, first, second, gradient, *after = values.reshape(_ROWS, _COORDINATES)
        return cls(event, State(weights, first, second), gradient, State(*after))


class _Process:
    """The steps of one process, in order."""

    def __init__(self, name: str, incarnation: int, rules: InnerRules, rates: Mapping[int, set[float]],
                 batches: Batches | None, result: InnerSteps) -> None:
        """`rates`: where gradients are averaged, those that a training step can have."""
        self._name, self._rules, self._rates, self._batches, self._result = name, rules, rates, batches, result
        warm = incarnation == 0 and name in rules.starters
        self._count = rules.schedule.warm_start if warm else 0
        """AdamW's count before the first step."""
        self._first: int | None = None
        self._steps: dict[int, Step] = {}
        self._received: set[int] = set()
        self._hit: set[tuple[str, int]] = set()
        """(`weights` or `moments`, step after which memory failed)."""
        self._last: _Told | None = None
        self._told = 0

    def judge(self, events: Iterable[Event]) -> None:
        """Go through what the process recorded."""
        for event in events:
            match event:
                case Step():
                    self._first = event.step if self._first is None else self._first
                    self._steps[event.step] = event
                case Received():
                    self._received.add(event.step)
                case Corrupted():
                    self._hit.add((event.part, event.step))
                case Reset():
                    self._count, self._first, self._last = 0, None, None
                case Ready() if self._rules.averages:
                    self._last = None
                case InnerStep():
                    self._inner(event)
        if not self._told and len(self._steps) >= _SILENT:
            self._differs(self._steps[max(self._steps)], "it told of none of its steps what AdamW made of them")
        self._result.processes += bool(self._told)

    def _inner(self, event: InnerStep) -> None:
        self._told += 1
        self._result.steps += 1
        told = _Told.of(event)
        if told is None:
            self._differs(event, f"step {event.step}: its values can't be read")
            return
        self._counts(told)
        self._follows(told)
        self._computed(told)
        self._batch(event)
        self._last = told

    def _counts(self, told: _Told) -> None:
        """AdamW has taken as many steps as the plan and the log say, and takes one more."""
        event = told.event
        expected = event.step - 1 if self._rules.averages else (
            None if self._first is None else self._count + event.step - self._first)
        if expected is None:
            return
        if event.count != expected or event.counted != expected + 1:
            self._differs(event, f"step {event.step}: AdamW's count went from {event.count} to {event.counted}, and it "
                                 f"had taken {expected} steps")
        elif not expected and ("moments", event.step - 1) not in self._hit and (
                told.before.first.any() or told.before.second.any()):
            self._differs(event, f"step {event.step}: AdamW's moments are not fresh before its first step")

    def _follows(self, told: _Told) -> None:
        """It begins with what the last one that was told came to."""
        last, event = self._last, told.event
        if last is None or event.step <= last.event.step:
            return
        between = event.step - last.event.step - 1
        spared = not any(part == "moments" and last.event.step <= step < event.step for part, step in self._hit)
        where = f"step {event.step}: AdamW's moments are not those after step {last.event.step}"
        if spared and not between and not all(map(_same, told.before[1:], last.after[1:])):
            self._differs(event, f"{where}{' and a receipt' if last.event.step in self._received else ''}")
        elif spared and between and (told.before.second < adamw.least_second(last.after.second, between)).any():
            self._differs(event, f"{where}: second moments fell faster than they decay in {between} steps")
        if (not between and last.event.step not in self._received and ("weights", last.event.step) not in self._hit
                and not _same(told.before.weights, last.after.weights)):
            self._differs(event, f"step {event.step}: its weights are not those after step {last.event.step}, and "
                                 f"nothing was received between them")

    def _computed(self, told: _Told) -> None:
        """What came of it is what the formulas give."""
        event, norm = told.event, told.event.norm
        rates = self._rates.get(event.step, set()) if self._rules.averages else {
            step.lr for step in [self._steps.get(event.step)] if step is not None and step.lr is not None}
        if norm is None or not rates:
            return
        if not norm ** 2 >= (told.gradient ** 2).sum() * (1 - 1e-5):
            self._differs(event, f"step {event.step}: its gradient's norm was {norm:.4g}, and some of its values alone "
                                 f"have more")
        best = min((_off(told, norm, rate) for rate in rates), key=lambda off: off[0])
        if best[0]:
            self._differs(event, f"step {event.step}: {best[1]}")

    def _batch(self, event: InnerStep) -> None:
        step = self._steps.get(event.step)
        position = event.step - 1 if self._rules.averages else None if step is None else step.position
        if self._batches is None or position is None or self._name not in self._rules.learners:
            return
        self._result.batches += 1
        if event.batch != self._batches.digest(self._rules.learners.index(self._name), position):
            self._differs(event, f"step {event.step}: what it was trained on is not batch {position} of {self._name}")

    def _differs(self, event: Event, words: str) -> None:
        self._result.wrong.append(Difference(event.t, line(f"{event.node}.{event.inc} at ", event.t, f", {words}")))


def _same(left: adamw.Numbers, right: adamw.Numbers) -> bool:
    return bool(np.array_equal(left, right, equal_nan=True))


def _off(told: _Told, norm: float, rate: float) -> tuple[int, str]:
    """Return how many of the values after a step are not what the formulas give, and the worst of it in words."""
    expected = adamw.step(told.before, told.gradient, norm, rate, told.event.count)
    wrong, worst = 0, ""
    for name, made, off, recorded in zip(State._fields, expected.made, expected.off, told.after, strict=True):
        differ = np.isfinite(made) & ~(np.abs(recorded - made) <= off)
        if differ.any():
            at = int(np.argmax(np.where(differ, np.abs(recorded - made), 0)))
            worst = worst or (f"{differ.sum()} of {differ.size} {_NAMES[name]} are not what AdamW makes of them: "
                              f"{recorded[at]:.7g}, and the formulas give {made[at]:.7g}")
            wrong += int(differ.sum())
    return wrong, worst


_NAMES = {"weights": "weights", "first": "first moments", "second": "second moments"}


def _rates(rules: InnerRules, recorded: Recorded) -> dict[int, set[float]]:
    """Return the rates that each training step can have, by the tokens that the hub says came before it; a step that
    was made again may have others."""
    rates: dict[int, set[float]] = defaultdict(set)
    for event in recorded.tape.of(Initial, Resumed, RolledBack, Merge, node=COORDINATOR):
        if isinstance(event, Initial | Resumed | RolledBack | Merge):
            step = event.version if isinstance(event, Merge) else event.step
            rates[step + 1].add(float(rules.schedule.inner_rate(np.asarray(event.processed, np.float64))))
    return rates


def _begin_alike(rules: InnerRules, recorded: Recorded, result: InnerSteps) -> None:
    """All that go on from the warm start begin with its moments."""
    first: _Told | None = None
    for (name, incarnation), events in sorted(recorded.tape.by_process(InnerStep).items()):
        told = next((_Told.of(event) for event in events if isinstance(event, InnerStep)), None)
        if incarnation or name not in rules.starters or told is None or told.event.count != rules.schedule.warm_start:
            continue
        first = first or told
        if not all(map(_same, told.before[1:], first.before[1:])):
            result.wrong.append(Difference(told.event.t, line(
                f"{name}.{incarnation} at ", told.event.t, f", step {told.event.step}: it did not begin with the "
                f"moments with which {first.event.node}.{first.event.inc} began")))


def held_against(rules: InnerRules, recorded: Recorded) -> InnerSteps | None:
    """Compute again the steps that were told of; None where none was."""
    tape = recorded.tape
    if not tape.has(InnerStep):
        return None
    result = InnerSteps()
    data = recorded.data
    batches = Batches(data, rules.schedule.batches, rules.schedule.context, rules.seed) if (
        data is not None and file_digest(data) == data.stem) else None
    rates = _rates(rules, recorded) if rules.averages else {}
    with np.errstate(all="ignore"):  # a log may come from anybody, and say any number
        for (name, incarnation), events in tape.by_process(
                Step, InnerStep, Received, Corrupted, Reset, Ready).items():
            if name in rules.learners:
                _Process(name, incarnation, rules, rates, batches, result).judge(events)
        if not rules.averages:
            _begin_alike(rules, recorded, result)
    result.wrong.sort(key=lambda difference: difference.t if math.isfinite(difference.t) else 0.0)
    return result
