"""A recorded run of any model, computed again from what its nodes kept of what they computed with.

That comes from the trainer itself, so nothing of it is believed: what went into a computation must have the digest that
the event log gives it, and so must what came of it. What lies between is computed here: the outer gradient, its
rounding, its anchor, the merge, the outer step, and what is carried.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from diloco_chaos.harness.base.lines import line
from diloco_chaos.harness.record.tape.events import (
    Disconnected,
    Event,
    Initial,
    Merge,
    OuterGradient,
    Received,
    Reset,
    Resumed,
    Step,
    Versions,
)
from diloco_chaos.harness.record.tape.recovered import Part, RecoveredPart
from diloco_chaos.harness.trainer.reference.algorithm import Counts, digest, kept, mean_gradient, merged, nesterov
from diloco_chaos.harness.trainer.reference.problem import Array, Tensors
from diloco_chaos.harness.trainer.reference.rules import ReferenceRules
from diloco_chaos.harness.trainers.api.trainer import Difference, Recorded, Replay
from diloco_chaos.harness.trainers.storage.workings import Kept

_ROUNDING = 1e-5
"""How far a value may be off, as a share of the largest change of its tensor: sums of float32 depend on the machine."""
_RADIUS = 2.0 ** -22
"""The same, as a share of the largest value: twice what float32 can tell apart."""
_FLIPPED = 0.01
"""Share of rounded values that may be the next one for that reason."""


@dataclass
class _Version:
    """A fragment's newest version, as the log has it."""

    number: int
    digest: str
    state: str | None
    counts: Counts | None = field(default_factory=Counts)
    """None where it is not known: a run that goes on tells of no merges before."""


@dataclass(frozen=True)
class _Made:
    """The making of a version, as the log has it."""

    event: Merge | Versions
    fragment: int
    version: _Version
    parts: Sequence[Part]
    outer: Sequence[float]

    @property
    def name(self) -> str:
        """Return the version's name for people."""
        return f"version {self.version.number} of fragment {self.fragment}"


class _Again:
    """See the module."""

    def __init__(self, rules: ReferenceRules, recorded: Recorded, records: Iterable[Kept]) -> None:
        self._rules, self._tape = rules, recorded.tape
        self._merges: dict[tuple[int, int], dict[int, list[Kept]]] = {}
        """(fragment, version) -> incarnation of the syncer -> its records: several where a group went back."""
        self._others: dict[tuple[str, int], dict[tuple[str, int, int], Kept]] = {}
        """A learner's process -> (event, fragment, step) -> its record."""
        for record in records:
            self._sort(record)
        self._newest: dict[int, _Version] = {}
        self._digests: dict[tuple[int, int], str] = {}
        self._tokens: dict[str, int] = {
            node: series[0].tokens for (node, _), series in reversed([*self._tape.series(Step).items()])}
        self._replay = Replay()
        self._wrong: list[Difference] = []

    def _sort(self, record: Kept) -> None:
        try:
            fragment = int(record.fields["fragment"])
            if record.of == "merge":
                of_version = self._merges.setdefault((fragment, int(record.fields["version"])), {})
                of_version.setdefault(record.incarnation, []).append(record)
            else:
                place = record.of, fragment, int(record.fields["step"])
                self._others.setdefault((record.node, record.incarnation), {})[place] = record
        except (KeyError, TypeError, ValueError):
            return  # it names nothing that was computed

    def done(self) -> Replay:
        """Check everything that was recorded, and return what came of it."""
        if not self._merges and not self._others:
            self._replay.missing = "no node kept anything of what it computed with"
            return self._replay
        for event in self._tape.of(Initial, Resumed, Merge, node="syncer"):
            if isinstance(event, Merge):
                self._merge(event)
            else:
                self._begin(event)
        for process, events in self._tape.by_process(OuterGradient, Received, Disconnected, Reset).items():
            if process in self._others:
                self._of_learner(events, self._others[process])
        self._replay.difference = min(self._wrong, key=lambda difference: difference.t, default=None)
        return self._replay

    # -- merges --------------------------------------------------------------------------------------------------------

    def _begin(self, event: Versions) -> None:
        """A syncer begins, or goes on: perhaps from versions of which the one before it was killed before it told."""
        nothing = [None] * len(event.versions)
        each = zip(event.versions, event.digests, event.states or nothing, event.contributions or nothing,
                   event.outer or nothing, strict=False)
        for fragment, (number, its, state, parts, outer) in enumerate(each):
            before = self._newest.get(fragment)
            if before is not None and number == before.number + 1 and parts and outer:
                made_of = [RecoveredPart(*part) for part in parts]
                self._follows(_Made(event, fragment, _Version(number, its, state), made_of, outer))
            elif before is None or number != before.number:
                self._newest[fragment] = _Version(number, its, state, Counts() if number == 0 else None)
                self._digests[fragment, number] = its

    def _merge(self, event: Merge) -> None:
        if event.outer is not None:
            version = _Version(event.version, event.digest, event.state)
            self._follows(_Made(event, event.fragment, version, event.contributions, event.outer))
        elif records := self._merges.get((event.fragment, event.version), {}).get(event.inc):
            answers = {f"answer/{part.learner}": part.digest for part in event.contributions}
            all_parts = [record.parts for record in records]
            self._mean(event, next((parts for parts in all_parts if answers == {
                name: digest(its) for name, its in parts.items() if name.startswith("answer/")}),
                all_parts[-1]))

    def _follows(self, made: _Made) -> None:
        """A version comes after another one. Hold it against what is kept of how it was made."""
        before, after = self._newest.get(made.fragment), made.version
        follows = before is not None and before.number == after.number - 1
        counts = before.counts if before is not None and follows else None
        counted = None if counts is None else counts.of(after.number - 1)
        if counts is not None:
            counts.merged(made.parts, sum(map(self._tokens_of, made.parts)))
        after.counts = counts
        self._newest[made.fragment] = after
        self._digests[made.fragment, after.number] = after.digest
        records = self._merges.get((made.fragment, after.number), {})
        by = made.event.inc if isinstance(made.event, Merge) else max(
            (number for number in records if number < made.event.inc), default=-1)
        if before is not None and follows and by in records:
            self._replay.versions += 1
            parts = records[by][-1].parts
            self._what_went_in(made, before, counted, parts)
            if not self._wrong:
                self._what_came_of_it(made, parts)

    def _what_went_in(self, made: _Made, before: _Version, counted: list[object] | None,
                      parts: Mapping[str, Tensors]) -> None:
        """Check that a merge's inputs have the digests in the log, and its outputs, too."""
        for roof, version, counts in (("", before, counted), (
                "after/", made.version, made.version.counts and made.version.counts.of(made.version.number))):
            value, momentum, error = (parts.get(roof + name, {}) for name in ("value", "momentum", "error"))
            name = f"version {version.number} of fragment {made.fragment}"
            self._same(made.event, name, digest(value), version.digest)
            if version.state and counts:
                self._same(made.event, f"momentum, cost of rounding or counts of {name}",
                           kept(value, momentum, error, counts), version.state)
        value = parts.get("value", {})
        for part in made.parts:
            answer, base = (parts.get(f"{what}/{part.learner}") for what in ("answer", "base"))
            its = f"the outer gradient of {part.learner} in {made.name}"
            self._fits(made.event, its, answer, value)
            if part.digest is not None and answer is not None:
                self._same(made.event, its, digest(answer), part.digest)
            old = part.base is not None and part.base < before.number
            if base is not None or (self._rules.latest and old):
                self._fits(made.event, f"the base of {its}", base, value)
            if base is not None:
                expected = self._digests.get((made.fragment, -1 if part.base is None else part.base))
                self._same(made.event, f"the base of {its}", digest(base), expected or digest(base))

    def _what_came_of_it(self, made: _Made, parts: Mapping[str, Tensors]) -> None:
        """It is what the formulas give."""
        value, momentum, rounding = parts["value"], parts["momentum"], self._rules.broadcasts
        gradients, weights = [], []
        for part in made.parts:
            gradient, base = parts[f"answer/{part.learner}"], parts.get(f"base/{part.learner}")
            if self._rules.latest and base is not None:
                gradient = {name: gradient[name] + (value[name] - base[name]) for name in gradient}
            gradients.append(gradient)
            steps, tokens = part.last - part.first + 1, self._tokens_of(part)
            weights.append(tokens * (tokens / steps))
        averaged = self._rules.tables if self._rules.radial else tuple(value)
        after, moved = nesterov(value, momentum, merged(gradients, weights, averaged), *made.outer)
        rounded = rounding.precision != "float32"
        if rounded:
            key = f"{self._rules.seed}/{min(after)}/{made.version.number}"
            change, _ = rounding.sent({name: after[name] - value[name] for name in after}, parts["error"], key)
            after = {name: value[name] + change[name] for name in after}
        self._near(made.event, made.name, after, parts["after/value"], value, rounded)
        self._near(made.event, f"the momentum of {made.name}", moved, parts["after/momentum"], momentum)

    def _mean(self, event: Merge, parts: Mapping[str, Tensors]) -> None:
        """Data parallelism: what everybody takes the step with."""
        answers = [parts.get(f"answer/{part.learner}") for part in event.contributions]
        for part, answer in zip(event.contributions, answers, strict=True):
            its = f"the gradient of {part.learner} for step {event.version}"
            self._fits(event, its, answer, parts.get("after", {}))
            self._same(event, its, digest(answer or {}), part.digest)
        self._same(event, f"the mean gradient of step {event.version}", digest(parts.get("after", {})),
                   event.digest)
        if self._wrong:
            return
        self._replay.versions += 1
        each = [part.tokens for part in event.contributions]
        again, _ = self._rules.broadcasts.sent(mean_gradient([answer for answer in answers if answer], each), {}, "")
        nothing = {name: np.zeros_like(array) for name, array in again.items()}
        self._near(event, f"the mean gradient of step {event.version}", again, parts["after"], nothing,
                   self._rules.broadcasts.precision != "float32")

    def _tokens_of(self, part: Part) -> int:
        """Tokens of the steps that the part stands for."""
        return (part.last - part.first + 1) * self._tokens.get(part.learner, 0)

    # -- learners ------------------------------------------------------------------------------------------------------

    def _of_learner(self, events: Iterable[Event], records: Mapping[tuple[str, int, int], Kept]) -> None:
        """One process."""
        given: dict[int, Tensors] = {}  # fragment -> what it had when it was asked for it, where that is kept
        for event in events:
            if not isinstance(event, OuterGradient | Received):
                given.clear()
                continue
            index = event.fragment
            record, answered = records.get((event.event, index, event.step)), given.pop(index, None)
            if record is None:
                continue
            parts = record.parts
            if isinstance(event, OuterGradient):
                given[index] = parts.get("now", {})
                self._answer(event, index, parts)
            elif record.fields.get("version") == event.version:
                self._carried(event, index, parts, answered)

    def _answer(self, event: OuterGradient, index: int, parts: Mapping[str, Tensors]) -> None:
        base, now, cost = (parts.get(name, {}) for name in ("base", "now", "error"))
        self._replay.answers += 1
        expected = self._digests.get((index, event.base))
        self._same(event, f"the base of its outer gradient of fragment {index}", digest(base), expected or digest(base))
        self._fits(event, f"its own value of fragment {index}", now, base)
        if cost:
            self._fits(event, f"what rounding has cost fragment {index}", cost, base)
        if not self._wrong:
            key = f"{self._rules.seed}/{event.node}/{event.inc}/{index}/{event.step}"
            sent, _ = self._rules.gradients.sent({name: base[name] - now[name] for name in now}, cost, key)
            self._same(event, f"its outer gradient of fragment {index}", event.digest, digest(sent))

    def _carried(self, event: Received, index: int, parts: Mapping[str, Tensors], given: Tensors | None) -> None:
        received, answered, now, after = (parts.get(name, {}) for name in ("told", "answered", "now", "after"))
        self._replay.answers += 1
        self._same(event, f"fragment {index}, as received", digest(received), event.digest)
        if given is not None:
            self._same(event, f"what it had when it was asked for fragment {index}", digest(answered), digest(given))
        for tensors in (answered, now):
            self._fits(event, f"its own value of fragment {index}", tensors, received)
        if not self._wrong:
            self._same(event, f"fragment {index}, with what was carried", digest(after), digest(
                {name: received[name] + (now[name] - answered[name]) for name in received}))

    # -- differences ---------------------------------------------------------------------------------------------------

    def _same(self, event: Event, what: str, actual: str, expected: str) -> None:
        if actual != expected:
            self._differs(event, f"{what} is {actual}, and must be {expected}")

    def _fits(self, event: Event, what: str, tensors: Tensors | None, like: Tensors) -> None:
        if tensors is None or {name: array.shape for name, array in tensors.items()} != {
                name: array.shape for name, array in like.items()}:
            self._differs(event, f"{what} is not kept, or of another shape")

    def _near(self, event: Event, what: str, recomputed: Tensors, recorded: Tensors, before: Tensors,
              rounded: bool = False) -> None:
        for name, value in recomputed.items():
            off = np.abs(value.astype(np.float64) - recorded[name])
            change = _largest(value - before[name])
            wrong = ~(off <= _ROUNDING * change + _RADIUS * _largest(value))
            if wrong.any() and not (rounded and wrong.mean() <= _FLIPPED):
                self._differs(event, f"{what} is not what the formulas give: {wrong.sum()} of {wrong.size} values of "
                                     f"{name} differ, by {off.max():.2g} at the most, where it changed by {change:.2g}")

    def _differs(self, event: Event, words: str) -> None:
        self._wrong.append(Difference(event.t, line(f"{event.node}.{event.inc}, {event.event} at ", event.t,
                                                   f": {words}")))


def _largest(array: Array) -> float:
    return float(np.abs(array).max(initial=0.0))


def held_against(rules: ReferenceRules, recorded: Recorded, records: Iterable[Kept]) -> Replay:
    """Compute again what was kept, and compare it with the log."""
    with np.errstate(all="ignore"):  # a folder may come from anybody, and say any number
        return _Again(rules, recorded, records).done()
