"""The comparison of ways as numbers: a row for each figure, with its interval and whether it is more than chance. Pure.

Ways are held against the first one, in pairs of runs of the same plan and seed. What a pair lacks on either side takes
no part in the difference and is counted beside it; that a phase ends in one way and not in the other is a difference of
its own (`ended`), so that a way that never recovers does not look quick.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Literal

from diloco_chaos.chaos.evidence.phases import (
    EXCLUDED,
    FIRST_ROUND,
    MADE_GOOD,
    NOTICED,
    OVER,
    PACE,
    READY,
    RESTARTED,
)
from diloco_chaos.chaos.report.chance import (
    SURE,
    Difference,
    Estimate,
    difference,
    difference_of_rates,
    estimate,
    least_chance,
    more_than_chance,
)
from diloco_chaos.chaos.report.comparison.measured import (
    GOODPUT,
    LOST,
    STALL,
    TOOK,
    Ending,
    PhaseMeasured,
    RunMeasured,
    WayMeasured,
    unit_of,
)
from diloco_chaos.chaos.runner.run import INCONCLUSIVE, INTERRUPTED

PHASES = (NOTICED, EXCLUDED, RESTARTED, OVER, READY, FIRST_ROUND, PACE, MADE_GOOD)
FIGURES = (LOST, STALL, GOODPUT, TOOK)
PASSED, ENDED = "runs that passed", "training ended"
_RESOLUTION = {"s": 0.02, "share": 0.001, "rate": 0.0}
"""In what steps figures are measured; counts in whole ones."""
_ENOUGH = 2
Call = Literal["better", "worse", "perhaps", "no", "untold"]
Kind = Literal["phase", "figure", "ended", "passed", "check"]


@dataclass(frozen=True)
class Cell:
    """A figure of one way."""

    estimate: Estimate | None
    missing: dict[Ending, int] = field(default_factory=dict)
    """Why there is none -> how often."""
    held: tuple[int, int] | None = None
    """Of a rate: how often, of how many."""


@dataclass(frozen=True)
class Row:
    """A figure of two ways."""

    name: str
    kind: Kind
    unit: str
    more_is_better: bool
    first: Cell
    second: Cell
    difference: Difference
    call: Call = "untold"
    """What the second is: more than chance has it; `perhaps`: its interval alone says so; `no`: nothing shows it."""

    @property
    def sign(self) -> int:
        """Return 1 where the second is better, -1 where it is worse."""
        told = self.difference.estimate
        if told is None or not told.mean:
            return 0
        return 1 if (told.mean > 0) == self.more_is_better else -1


@dataclass(frozen=True)
class Pairing:
    """A way beside the first one."""

    first: WayMeasured
    second: WayMeasured
    seeds: tuple[int, ...]
    """Those that both have."""
    rows: tuple[Row, ...]
    not_told: dict[str, str]
    """Phase -> why neither has it."""

    def called(self, *calls: Call) -> list[Row]:
        """Return the rows of which that is said."""
        return [row for row in self.rows if row.call in calls]


@dataclass(frozen=True)
class Comparison:
    """Ways beside the first of them."""

    ways: tuple[WayMeasured, ...]
    pairings: tuple[Pairing, ...]
    place: str
    slower: tuple[str, ...] = ()
    """What got slower since the baseline, a sentence each."""
    interrupted: str = ""
    """How many runs are missing; empty: none."""
    stopped: tuple[str, ...] = ()
    """What broke, a line for each run, where no run began to train and the others were given up."""

    @property
    def alarms(self) -> tuple[str, ...]:
        """Return what must be read before any figure."""
        return (*self.slower, *filter(None, [self.interrupted]), *self.stopped)

    @property
    def told(self) -> tuple[Pairing, ...]:
        """Return the pairings of which there is anything to say."""
        return () if self.stopped else self.pairings

    @property
    def exit_code(self) -> int:
        """130 if interrupted, 1 if anything got slower, 3 if there is nothing to compare, else 0."""
        if self.interrupted:
            return INTERRUPTED
        if self.stopped:
            return INCONCLUSIVE
        if self.slower:
            return 1
        told = [any(row.difference.estimate for row in pairing.rows) for pairing in self.pairings]
        return 0 if all(told) else INCONCLUSIVE


def paired(ways: Sequence[WayMeasured]) -> list[Pairing]:
    """Return every way but the first beside the first. The more figures there are, the more each of them needs to be
    called more than chance."""
    pairings = [_pairing(ways[0], other) for other in ways[1:]]
    tested = [row.difference.chance for pairing in pairings for row in pairing.rows if _can_tell(row, pairing)]
    called = iter(more_than_chance(tested))
    return [Pairing(pairing.first, pairing.second, pairing.seeds,
                    tuple(_judged(row, _can_tell(row, pairing) and next(called)) for row in pairing.rows),
                    pairing.not_told) for pairing in pairings]


def _can_tell(row: Row, pairing: Pairing) -> bool:
    """Return whether a row is one of those that may be called more than chance: a rate of few runs never is, whatever
    comes out, and need not make it harder for the others."""
    if row.unit != "rate":
        return row.difference.estimate is not None
    others = sum(other.unit != "rate" for other in pairing.rows)
    runs = [cell.held[1] if cell.held else 0 for cell in (row.first, row.second)]
    return least_chance(runs[0], runs[1]) * max(1, others) <= 1 - SURE


def _pairing(first: WayMeasured, second: WayMeasured) -> Pairing:
    runs, others = ({run.seed: run for run in way.runs} for way in (first, second))
    seeds = tuple(seed for seed in runs if seed in others)
    pairs = [(runs[seed], others[seed]) for seed in seeds]
    rows: list[Row] = []
    not_told: dict[str, str] = {}
    for name in PHASES:
        rows += _of_phase(name, pairs, not_told)
    rows += [row for name in FIGURES for row in _of_figure(name, first, pairs)]
    rows += _of_verdicts(pairs)
    return Pairing(first, second, seeds, tuple(rows), not_told)


def _of_phase(name: str, pairs: Sequence[tuple[RunMeasured, RunMeasured]], not_told: dict[str, str]) -> list[Row]:
    told = [[_phases(run, name) for run in pair] for pair in pairs]
    sides = [[phase for pair in told for phase in pair[side].values()] for side in (0, 1)]
    if not any(phase.ending in ("", "never") for side in sides for phase in side):
        reasons = [phase.why for side in sides for phase in side if phase.ending == "untold"]
        not_told.update({name: reasons[0]} if reasons else {})
        return []
    differences: list[tuple[float | None, float | None]] = []
    for before, after in told:
        both = [(a.seconds, b.seconds) for key, a in before.items() if (b := after.get(key)) is not None
                and a.seconds is not None and b.seconds is not None]
        differences += [(fmean(a for a, _ in both), fmean(b for _, b in both))] if both else [(None, None)]
    cells = [Cell(estimate([value for pair in told if (value := _mean(pair[side])) is not None], _RESOLUTION["s"]),
                  _missing(sides[side])) for side in (0, 1)]
    rows = [Row(name, "phase", "s", False, cells[0], cells[1], difference(differences, _RESOLUTION["s"]))]
    if any(phase.ending == "never" for side in sides for phase in side):
        rates = [_rate([pair[side] for pair in told]) for side in (0, 1)]
        rows.append(_row_of_rates(f"{name} at all", "ended", rates))
    return rows


def _phases(run: RunMeasured, name: str) -> dict[str, PhaseMeasured]:
    """The phase of this name in each recovery of a run."""
    return {key: phases[name] for key, phases in run.recoveries.items() if name in phases}


def _mean(phases: dict[str, PhaseMeasured]) -> float | None:
    """Seconds, over the recoveries of a run in which it ended."""
    ended = [phase.seconds for phase in phases.values() if phase.seconds is not None]
    return fmean(ended) if ended else None


def _missing(phases: Iterable[PhaseMeasured]) -> dict[Ending, int]:
    counted: dict[Ending, int] = {}
    for phase in phases:
        if phase.ending:
            counted[phase.ending] = counted.get(phase.ending, 0) + 1
    return counted


def _rate(runs: Sequence[dict[str, PhaseMeasured]]) -> tuple[int, int]:
    """In how many runs a phase ended in all recoveries in which it could, of how many that have one."""
    told = [[phase.ending != "never" for phase in run.values() if phase.ending in ("", "never")] for run in runs]
    return sum(all(ended) for ended in told if ended), sum(bool(ended) for ended in told)


def _of_figure(name: str, way: WayMeasured, pairs: Sequence[tuple[RunMeasured, RunMeasured]]) -> list[Row]:
    values = [(before.figures.get(name), after.figures.get(name)) for before, after in pairs]
    unit = unit_of(name, way)
    resolution = _RESOLUTION.get(unit, 1.0)
    sides = [[pair[side] for pair in values] for side in (0, 1)]
    if all(value is None for side in sides for value in side) or (
            name == LOST and not any(run.recoveries for pair in pairs for run in pair)):
        return []
    ending: Ending = "never" if name == TOOK else "untold"
    cells = [Cell(estimate([value for value in side if value is not None], resolution),
                  {ending: side.count(None)} if None in side else {}) for side in sides]
    rows = [Row(name, "figure", unit, name == GOODPUT, cells[0], cells[1], difference(values, resolution))]
    if name == TOOK and any(None in side for side in sides):
        rates = [(len(side) - side.count(None), len(side)) for side in sides]
        rows.append(_row_of_rates(ENDED, "ended", rates))
    return rows


def _of_verdicts(pairs: Sequence[tuple[RunMeasured, RunMeasured]]) -> list[Row]:
    """How many passed; and which checks did not hold as often in both."""
    def held(side: int, verdict: Callable[[RunMeasured], str | None]) -> tuple[int, int]:
        found = [verdict(pair[side]) for pair in pairs]
        return found.count("passed"), found.count("passed") + found.count("failed")
    rows = [_row_of_rates(PASSED, "passed", [held(side, lambda run: run.verdict.lower()) for side in (0, 1)])]
    for name in dict.fromkeys(name for pair in pairs for run in pair for name in run.checks):
        rates = [held(side, lambda run, name=name: run.checks.get(name)) for side in (0, 1)]  # type: ignore[misc]
        (held_once, of), (held_then, of_then) = rates
        if held_once * of_then != held_then * of:  # 0 = 0 where one has no run that was judged
            rows.append(_row_of_rates(name, "check", rates))
    return rows


def _row_of_rates(name: str, kind: Kind, rates: Sequence[tuple[int, int]]) -> Row:
    return Row(name, kind, "rate", True, Cell(None, held=rates[0]), Cell(None, held=rates[1]),
               difference_of_rates(rates[0], rates[1]))


def _judged(row: Row, called: bool) -> Row:
    told = row.difference.estimate
    call: Call
    if told is None or told.low is None or told.high is None or told.runs < _ENOUGH:
        call = "untold"
    elif told.low <= 0 <= told.high:
        call = "no"
    elif called:
        call = "better" if row.sign > 0 else "worse"
    else:
        call = "perhaps"
    return Row(row.name, row.kind, row.unit, row.more_is_better, row.first, row.second, row.difference, call)
