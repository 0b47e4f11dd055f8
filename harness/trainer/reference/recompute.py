"""A recorded run of the quadratic model, computed again from its event log and the formulas alone.

Only what happened is taken from the log (which step was made of which batch at which rate, who received which version,
what was merged), never what came of it: that is computed here, and held against the digests that the log has. Of a long
run the first versions are computed again, and what led to them.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from diloco_chaos.harness.base.lines import line
from diloco_chaos.harness.record.tape.events import (
    Corrupted,
    Disconnected,
    Event,
    Initial,
    Merge,
    OuterGradient,
    Received,
    Reset,
    Resumed,
    Skipped,
    Step,
)
from diloco_chaos.harness.record.tape.recovered import Made, Part
from diloco_chaos.harness.trainer.reference.algorithm import Counts, digest, fragments, kept, merged, nesterov
from diloco_chaos.harness.trainer.reference.problem import SHAPES, TABLES, Tensors, Weights, initial
from diloco_chaos.harness.trainer.reference.rules import ReferenceRules
from diloco_chaos.harness.trainers.api.trainer import Difference, Recorded, Replay
from diloco_chaos.harness.trainers.core.memory import Corruption
from diloco_chaos.harness.trainers.core.roles import COORDINATOR

LOSS = 2e-4
"""Losses are written to four digits."""
MOST = 3_000
"""Versions that are computed again: some tenths of a second."""
_LIVED = Step, Skipped, Received, OuterGradient, Disconnected, Reset, Corrupted


@dataclass
class _Piece:
    """The part of a learner's state that belongs to one fragment."""

    base: Tensors | None = None
    version: int = -1
    steps: int = 0
    given: Tensors | None = None
    """Its own value when it was last asked."""
    given_steps: int = 0
    cost: Tensors = field(default_factory=dict)
    """What rounding had cost when it received this version."""
    owed: Tensors = field(default_factory=dict)
    """What it has cost with the newest outer gradient, if that is merged."""


@dataclass
class _Life:
    """One process of a learner."""

    weights: Weights
    events: Iterator[Event]
    """What is left of its tape, but for the next one."""
    pieces: list[_Piece]
    answers: dict[tuple[int, int, int], tuple[int, int, float, Tensors]] = field(default_factory=dict)
    """(fragment, first, last step) -> base version, steps, tokens, outer gradient."""
    tokens: float = 0.0
    """Of a step."""
    next: Event | None = None

    def __post_init__(self) -> None:
        self.go_on()

    def go_on(self) -> None:
        """Go on to the next event."""
        self.next = next(self.events, None)


class Recomputation:
    """See the module."""

    def __init__(self, rules: ReferenceRules, recorded: Recorded) -> None:
        self._rules = rules
        sizes = {name: math.prod(shape) for name, shape in SHAPES.items()}
        self._names = fragments(sizes, TABLES, rules.fragments)
        first = initial(rules.seed)
        self._values: dict[tuple[int, int], Tensors] = {
            (index, 0): {name: first[name] for name in names} for index, names in enumerate(self._names)}
        self._digests = {place: digest(value) for place, value in self._values.items()}
        self._momentum = [{name: np.zeros_like(first[name]) for name in names} for names in self._names]
        self._costs: list[Tensors] = [{} for _ in self._names]
        self._counts = [Counts() for _ in self._names]
        self._newest = [0] * len(self._names)
        self._lives = {node: _Life(Weights(rules.seed, rules.learners.index(node[0])), events,
                                   [_Piece() for _ in self._names])
                       for node, events in recorded.tape.by_process(*_LIVED).items() if node[0] in rules.learners}
        self._merges, self._more = _merges(recorded, len(self._names))
        self._replay = Replay()
        self._wrong: list[Difference] = []
        for event in recorded.tape.of(Initial)[:1]:
            fragments_ = range(len(self._names))
            self._same(event, "version 0", [self._digests[index, 0] for index in fragments_], event.digests)
            if event.states:
                self._same(event, "what is kept beside it", list(map(self._kept, fragments_)), event.states)

    def done(self) -> Replay:
        """Recompute as far as the log goes, or to the first difference, and return what came of it."""
        while not self._wrong and self._went_on():
            pass
        self._replay.difference = min(self._wrong, key=lambda difference: difference.t, default=None)
        left = [merges[0][0] for merges in self._merges if merges]
        if left and not self._wrong and not self._more:
            first = min(left, key=lambda event: event.t)
            self._replay.missing = (f"what version {first.version} of fragment {first.fragment} was made of is not in "
                                    f"the event log")
        return self._replay

    def _went_on(self) -> bool:
        went = False
        for life in self._lives.values():
            while life.next is not None and not self._wrong and self._can(life.next):
                self._live(life, life.next)
                life.go_on()
                went = True
        for index, merges in enumerate(self._merges):
            while merges and not self._wrong and self._merged(index, *merges[0]):
                merges.popleft()
                went = True
        return went

    def _can(self, event: Event) -> bool:
        return not isinstance(event, Received) or (event.fragment, event.version) in self._values

    # -- learners ------------------------------------------------------------------------------------------------------

    def _live(self, life: _Life, event: Event) -> None:
        match event:
            case Step() | Skipped():
                self._step(life, event)
            case Received():
                self._receive(life, event)
            case OuterGradient():
                self._answer(life, event)
            case Disconnected():
                for piece in life.pieces:
                    piece.given, piece.owed = None, {}
            case Reset():
                life.pieces = [_Piece() for _ in self._names]
            case Corrupted(part="weights"):
                Corruption.of(event).apply(life.weights.flat)

    def _step(self, life: _Life, event: Step | Skipped) -> None:
        loss = life.weights.step(event.position or 0, event.lr or 0.0)
        if isinstance(event, Skipped):
            self._same(event, "its loss", "not finite" if math.isnan(loss) else f"{loss:.4f}", "not finite")
            return
        self._replay.steps += 1
        life.tokens = event.tokens
        for piece in life.pieces:
            piece.steps += 1
        recorded = math.nan if event.loss is None else event.loss
        if not abs(loss - recorded) <= LOSS * max(1.0, abs(loss)):
            self._same(event, "its loss", f"{loss:.4f}", f"{recorded:.4f}")

    def _receive(self, life: _Life, event: Received) -> None:
        index = event.fragment
        piece, received = life.pieces[index], self._values[index, event.version]
        self._same(event, f"fragment {index}, as received", self._digests[index, event.version], event.digest)
        value, carried = received, 0
        if self._rules.carry and piece.given is not None and piece.base is not None:
            carried = piece.steps - piece.given_steps
            now = life.weights.of(self._names[index])
            value = {name: received[name] + (now[name] - piece.given[name]) for name in received}
        life.weights.put(value if carried else received)
        self._same(event, f"steps carried on top of fragment {index}", carried, event.carried)
        self._same(event, f"steps that ended with fragment {index}", piece.steps - carried, event.closed)
        cost = piece.owed if event.arrived else piece.cost
        life.pieces[index] = _Piece(received, event.version, carried, cost=cost)

    def _answer(self, life: _Life, event: OuterGradient) -> None:
        index = event.fragment
        piece, now = life.pieces[index], life.weights.of(self._names[index])
        if piece.base is None:
            self._same(event, f"fragment {index}", "never received", "an outer gradient")
            return
        key = f"{self._rules.seed}/{event.node}/{event.inc}/{index}/{event.step}"
        gradient, piece.owed = self._rules.gradients.sent(
            {name: piece.base[name] - now[name] for name in now}, piece.cost, key)
        piece.given, piece.given_steps = now, piece.steps
        place = index, event.step - piece.steps + 1, event.step
        life.answers[place] = piece.version, piece.steps, piece.steps * life.tokens, gradient
        self._same(event, f"the base of its outer gradient of fragment {index}", piece.version, event.base)
        self._same(event, f"the steps in its outer gradient of fragment {index}", piece.steps, event.steps)
        self._same(event, f"its outer gradient of fragment {index}", digest(gradient), event.digest)

    # -- merges --------------------------------------------------------------------------------------------------------

    def _merged(self, index: int, merge: Made, parts: Sequence[Part]) -> bool:
        """Compute a version again if all that goes into it is there, and the version before it; return whether it
        is."""
        newest = self._newest[index]
        if merge.version != newest + 1:
            return False
        answers = []
        for part in parts:
            if (given := self._given(index, part)) is None:
                return False
            answers.append(given)
        value = self._values[index, newest]
        gradients = []
        for base, _, _, gradient in answers:
            if self._rules.latest and base < newest:
                before = self._values[index, base]
                gradient = {name: gradient[name] + (value[name] - before[name]) for name in gradient}
            gradients.append(gradient)
        weights = [tokens * (tokens / steps) for _, steps, tokens, _ in answers]
        together = merged(gradients, weights, TABLES if self._rules.radial else tuple(SHAPES))
        rate, momentum = merge.outer or (0.0, 0.0)
        after, self._momentum[index] = nesterov(value, self._momentum[index], together, rate, momentum)
        if self._rules.broadcasts.precision != "float32":
            key = f"{self._rules.seed}/{min(after)}/{newest + 1}"
            change, self._costs[index] = self._rules.broadcasts.sent(
                {name: after[name] - value[name] for name in after}, self._costs[index], key)
            after = {name: value[name] + change[name] for name in after}
        self._newest[index] = newest + 1
        self._values[index, newest + 1] = after
        self._digests[index, newest + 1] = digest(after)
        self._replay.versions += 1
        which = f"version {merge.version} of fragment {index}"
        self._same(merge, which, self._digests[index, newest + 1], merge.digest)
        self._counts[index].merged(parts, sum(tokens for _, _, tokens, _ in answers))
        if merge.state:
            self._same(merge, f"momentum, cost of rounding and counts of {which}", self._kept(index), merge.state)
        return True

    def _kept(self, index: int) -> str:
        """The digest of all that the syncer keeps of a fragment's newest version."""
        return kept(self._values[index, self._newest[index]], self._momentum[index], self._costs[index],
                    self._counts[index].of(self._newest[index]))

    def _given(self, index: int, part: Part) -> tuple[int, int, float, Tensors] | None:
        life = self._lives.get((part.learner, part.incarnation))
        return life.answers.get((index, part.first, part.last)) if life else None

    def _same(self, event: Event | Made, what: str, computed: object, recorded: object) -> None:
        if computed != recorded:
            self._wrong.append(Difference(event.t, line(
                f"{_whose(event)} at ", event.t, f": {what} was {recorded}, and the formulas give {computed}")))


def _merges(recorded: Recorded, count: int) -> tuple[list[deque[tuple[Made, Sequence[Part]]]], bool]:
    """Return each fragment's merges in the order of versions, with those that only the next syncer recorded; and
    whether the log has more than these."""
    by_version: list[dict[int, Made]] = [{} for _ in range(count)]
    merges_ = recorded.tape.of(Merge)
    made: list[Made] = [*merges_[:MOST], *recorded.recovered_merges]
    for merge in made:
        by_version[merge.fragment].setdefault(merge.version, merge)
    return [deque((merges[version], list(merges[version].contributions)) for version in sorted(merges))
            for merges in by_version], len(merges_) > MOST


def _whose(event: Event | Made) -> str:
    return (f"{event.node}.{event.inc}, {event.event}" if isinstance(event, Event)
            else f"{COORDINATOR}.{event.inc}, {Resumed.name()}")


def recomputed(rules: ReferenceRules, recorded: Recorded) -> Replay:
    """Compute every version of every fragment, and every step, again."""
    steps = recorded.tape.series(Step).values()
    if any(None in series.plain(name) for series in steps for name in ("position", "lr")):
        return Replay(missing="some steps lack their position or learning rate")
    with np.errstate(all="ignore"):  # a log may come from anybody, and say any number
        return Recomputation(rules, recorded).done()
