"""Rounds as workers told them, and which of them were made again: after a restart a trainer goes back to a checkpoint,
and what it had made since is void. Pure.

What counts of a round is what was told of it last. Where workers finish rounds together, they go back together: who
died for good then has no part in what the others made again, and what it told of that is void as well.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import NamedTuple

from diloco_chaos.harness.record.tape.events import Step

_STRETCH = 5
"""A process that goes back by itself makes so many rounds in between, on average: the ranks of one node, whose lines
are mixed in its log, do not."""


class Back(NamedTuple):
    """A worker began again with a round that it had told before, or with a later one: a new process."""

    worker: str
    t: float
    round: int
    together: bool
    """All workers that go on went back with it."""


class Said(NamedTuple):
    """What was told of a round's outcome."""

    losses: tuple[float | str, ...]
    digests: tuple[str, ...] = ()


@dataclass(frozen=True)
class ToldRound:
    """One worker's word on one round, in one attempt to make it; of several ranks of a node that are not told apart all
    that they told."""

    worker: str
    """A node, or a rank of one."""
    inc: int
    attempt: int
    """How often the worker had begun anew before."""
    era: int
    """How often all workers had gone back together before."""
    steps: tuple[Step, ...]
    void: bool
    """It was lost: the round was made again."""

    @property
    def round(self) -> int:
        """Return the round's number."""
        return self.steps[0].step

    @property
    def t(self) -> float:
        """Return when it was told first, in seconds since the run began."""
        return self.steps[0].t

    @property
    def process(self) -> str:
        """Return the name of the process that told it."""
        return f"{self.worker}.{self.inc}"

    @property
    def losses(self) -> list[float | str]:
        """Return the losses that were told: what is no number as text, and after the numbers."""
        numbers = sorted(step.loss for step in self.steps if step.loss is not None)
        return [*numbers, *sorted(step.no_number for step in self.steps if step.no_number)]

    @property
    def digests(self) -> list[str]:
        """Return the digests of weights that were told, each once."""
        return sorted({step.digest for step in self.steps if step.digest})

    @property
    def said(self) -> Said:
        """Return all that was told of what came out."""
        return Said(tuple(self.losses), tuple(self.digests))


def told_rounds(steps: Iterable[Step], *, together: bool) -> list[ToldRound]:
    """Return what every worker told of its rounds, in the order of time. `together`: they finish rounds together."""
    lanes: dict[str, list[Step]] = {}
    for step in sorted(steps, key=lambda step: step.t):
        lanes.setdefault(step.member, []).append(step)
    attempts = {worker: _attempts(lane) for worker, lane in lanes.items()}
    backs = [Back(worker, attempt[0].t, attempt[0].step, together and _all_went_back(lanes, worker, before, attempt[0]))
             for worker, mine in attempts.items() for before, attempt in _with_before(mine)]
    eras = sorted(back.t for back in backs if back.together)
    rounds = [_round(worker, number, list(told), backs, eras) for worker, mine in attempts.items()
              for number, attempt in enumerate(mine)
              for _, told in groupby(sorted(attempt, key=lambda step: step.step), key=lambda step: step.step)]
    return sorted(rounds, key=lambda told: told.t)


def _round(worker: str, attempt: int, steps: list[Step], backs: Sequence[Back], eras: Sequence[float]) -> ToldRound:
    t, number = steps[0].t, steps[0].step
    void = any(t < back.t and back.round <= number and (back.together or back.worker == worker) for back in backs)
    return ToldRound(worker, steps[0].inc, attempt, sum(t >= era for era in eras), tuple(steps), void)


def _with_before(attempts: Sequence[list[Step]]) -> Iterator[tuple[int, list[Step]]]:
    """Yield every attempt but the first, with the last round that had been told before it."""
    newest = -1
    for attempt, following in pairwise(attempts):
        newest = max(newest, *(step.step for step in attempt))
        yield newest, following


def _attempts(lane: Sequence[Step]) -> list[list[Step]]:
    """What one worker told, cut where a new process begins, and where one goes back by itself."""
    attempts: list[list[Step]] = []
    for _, told in groupby(lane, key=lambda step: step.inc):
        process = list(told)
        falls = [index for index, (before, step) in enumerate(pairwise(process), 1) if step.step < before.step]
        several = any(before.step == step.step for before, step in pairwise(process))
        if several or len(falls) * _STRETCH > len(process):
            falls = []
        attempts += [process[start:end] for start, end in pairwise([0, *falls, len(process)])]
    return attempts


def _all_went_back(lanes: dict[str, list[Step]], worker: str, before: int, first: Step) -> bool:
    """Return whether a worker that begins anew goes back, and every other one that tells anything later does so, too:
    its next round is none that follows on its last. One that joins those who went back comes later than they."""
    return first.step <= before and all(_goes_back(lane, first.t) for other, lane in lanes.items() if other != worker)


def _goes_back(lane: Sequence[Step], t: float) -> bool:
    """Return whether a worker that tells anything from a moment on begins with a round that it had come to before.
    Lines of several workers that are read at once have one time."""
    place = bisect_left(lane, t, key=lambda step: step.t)
    return not 0 < place < len(lane) or lane[place].step <= lane[place - 1].step
