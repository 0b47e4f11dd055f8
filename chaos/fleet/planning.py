"""What a planner asks of a fleet: goodput over what can be chosen, what a point of it is worth, and which assumption it
hangs on."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from diloco_chaos.chaos.fleet.tables import count_words, way
from diloco_chaos.harness.base.units import show_long
from diloco_chaos.harness.fleet.fleet import Fleet, Mode
from diloco_chaos.harness.fleet.replications import Estimate, Summary

HOURS_A_YEAR = 24 * 365.25
MODES: tuple[Mode, ...] = ("decoupled", "elastic_data_parallel", "data_parallel")
_CHIPS = (0.125, 0.25, 0.5, 1.0, 2.0)
_LEARNERS = (2, 4, 8, 16, 32)
_REPAIRS = (1.0, 60.0, 600.0, 3600.0, 4 * 3600.0)
_SPREADS = (-1, 0, 1, 2, 3, 5)
"""Spares: the slices that are away on average, and so many times the root of that."""
_INTERVALS = (0.25, 0.5, 1.0, 2.0, 4.0)
"""Checkpoint intervals: so many times the root of twice a checkpoint's cost times the mean time between interruptions
(Young, 1974)."""
CHECKPOINT_S = 10.0
"""For which the job stands to save, where nothing is said."""
_TIMES = (0.5, 2.0)
_ASSUMED: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("time between interruptions of a chip", ("mtbf",)), ("time to repair", ("repair",)),
    ("pauses to shrink and to grow", ("shrink", "grow")), ("time in which returns share a growth", ("grow_within",)),
    ("time to notice a loss", ("detection",)), ("restart of a rigid job", ("restart",)),
    ("chips of a slice", ("slice_chips",)), ("learners", ("learners",)))
"""What the answer may hang on: in words, and the settings that it is."""


class Asked(NamedTuple):
    """A fleet that is to be simulated, and for what."""

    part: str
    """The chart or the table that it is for."""
    line: str
    x: float
    fleet: Fleet


class Answer(NamedTuple):
    """The same, and what came of it."""

    asked: Asked
    summary: Summary


class Hangs(NamedTuple):
    """What becomes of goodput where an assumption is half and twice as much, in points; None: it means nothing."""

    words: str
    points: dict[Mode, tuple[float, float] | None]

    @property
    def most(self) -> float:
        """The largest change."""
        return max((abs(change) for pair in self.points.values() if pair for change in pair), default=0.0)


class Bought(NamedTuple):
    """So many spares of a rigid job."""

    spares: int
    goodput: Estimate
    per_chip: float
    """Goodput per chip that is paid for, with the spares."""
    cost: float | None
    """Of the spares, in a year; None: no price is known."""
    per_point: float | None
    """Of each point that they bring beyond the row before; None: they bring none, or no price is known."""


@dataclass(frozen=True)
class Plan:
    """The whole page's content."""

    base: Fleet
    answers: Sequence[Answer]
    by_trace: Sequence[Summary]
    """Of fleets fitted to traces like the one given; empty: none was given."""
    cost: float | None
    """Of a chip for an hour."""

    def of(self, part: str) -> list[Answer]:
        """Return what was asked for one part of the page."""
        return [answer for answer in self.answers if answer.asked.part == part]

    @property
    def point_a_year(self) -> float | None:
        """Return what a point of goodput is worth in a year."""
        return None if self.cost is None else 0.01 * self.base.chips * HOURS_A_YEAR * self.cost

    def hangs(self) -> list[Hangs]:
        """Return on which assumptions it hangs, the most first."""
        was = {answer.asked.fleet.mode: answer.summary.goodput.mean for answer in self.of("modes")}
        now = {(answer.asked.line, answer.asked.fleet.mode, answer.asked.x): answer.summary.goodput.mean
               for answer in self.of("hangs")}
        rows = [Hangs(words, {mode: _pair(now, words, mode, was[mode]) for mode in MODES}) for words, _ in _ASSUMED]
        return sorted((row for row in rows if any(row.points.values())), key=lambda row: -row.most)

    def bought(self) -> list[Bought]:
        """Return what spares bring, and cost."""
        rows: list[Bought] = []
        for answer in sorted(self.of("spares"), key=lambda answer: answer.asked.x):
            fleet, goodput = answer.asked.fleet, answer.summary.goodput
            spares = fleet.spares or 0
            cost = None if self.cost is None else spares * fleet.slice_chips * HOURS_A_YEAR * self.cost
            gained = 100 * (goodput.mean - rows[-1].goodput.mean) if rows else 0.0
            extra = None if cost is None or not rows or rows[-1].cost is None else cost - rows[-1].cost
            rows.append(Bought(spares, goodput, goodput.mean * fleet.slices / (fleet.slices + spares), cost,
                               extra / gained if extra is not None and gained > 200 * (goodput.half or 0.0) else None))
        return rows


def _pair(now: dict[tuple[str, Mode, float], float], words: str, mode: Mode, was: float) -> tuple[float, float] | None:
    if (words, mode, _TIMES[0]) not in now:
        return None
    half, twice = (100 * (now.get((words, mode, times), math.nan) - was) for times in _TIMES)
    return half, twice


def wanted(base: Fleet) -> list[Asked]:
    """Return all fleets that the page needs."""
    return [*_modes(base), *_over_chips(base), *_over_learners(base), *_over_repair(base), *_over_spares(base),
            *_over_intervals(base), *_hangs(base)]


def _as(base: Fleet, **changes: Any) -> Fleet | None:
    """Return the fleet with some settings changed; None where there is no such fleet."""
    try:
        return Fleet.model_validate(base.model_copy(update=changes).model_dump(mode="json"))
    except ValueError:
        return None


def _asked(part: str, line: str, x: float, fleet: Fleet | None) -> Iterator[Asked]:
    if fleet is not None:
        yield Asked(part, line, x, fleet)


def _modes(base: Fleet) -> Iterator[Asked]:
    for mode in MODES:
        fleet = _as(base, mode=mode)
        assert fleet is not None
        yield Asked("modes", way(fleet), 0.0, fleet)


def _over_chips(base: Fleet) -> Iterator[Asked]:
    for asked in _modes(base):
        for times in _CHIPS:
            chips = max(1, round(base.chips * times))
            yield from _asked("chips", asked.line, chips, _as(asked.fleet, chips=chips))


def _over_learners(base: Fleet) -> Iterator[Asked]:
    for learners in sorted({*_LEARNERS, base.learners}):
        yield from _asked("learners", "decoupled", learners, _as(base, mode="decoupled", learners=learners))


def _over_repair(base: Fleet) -> Iterator[Asked]:
    for mode in MODES[:2]:
        for repair in sorted({*_REPAIRS, base.repair}):
            fleet = _as(base, mode=mode, repair=repair)
            if fleet is not None:
                yield Asked("repair", way(fleet), repair, fleet)


def _over_spares(base: Fleet) -> Iterator[Asked]:
    away = base.slices * base.repair / (base.slice_mtbf + base.repair)
    for spares in sorted({max(1, math.ceil(away + spread * math.sqrt(away))) for spread in _SPREADS}):
        yield from _asked("spares", "data parallel", spares, _as(base, mode="data_parallel", spares=spares))


def _over_intervals(base: Fleet) -> Iterator[Asked]:
    cost = base.checkpoint_cost or CHECKPOINT_S
    best = math.sqrt(2 * cost / base.interruptions_per_s)
    for every in sorted({*(best * times for times in _INTERVALS), base.checkpoint_every} - {0.0}):
        yield from _asked("intervals", "data parallel", every, _as(base, mode="data_parallel", checkpoint_every=every,
                                                                   checkpoint_cost=cost))


def _hangs(base: Fleet) -> Iterator[Asked]:
    for words, names in _ASSUMED:
        for mode in MODES:
            if _matters(mode, names, base):
                for times in _TIMES:
                    changes = {name: type(getattr(base, name))(getattr(base, name) * times) for name in names}
                    yield from _asked("hangs", words, times, _as(base, mode=mode, **changes))


def _matters(mode: Mode, names: Sequence[str], base: Fleet) -> bool:
    """Return whether such a job has anything to do with these settings."""
    if not all(getattr(base, name) for name in names):
        return False  # half and twice of nothing
    rigid = {"shrink", "grow_within"} if mode == "data_parallel" else {"restart"}
    return not rigid & set(names) and not (mode != "decoupled" and "learners" in names) and not (
        mode == "data_parallel" and base.spares is None and "repair" in names)


AXES: dict[str, tuple[str, str, Callable[[float], str]]] = {
    "chips": ("Goodput over the size of the fleet", "chips", lambda value: count_words(round(value))),
    "learners": ("Goodput over the number of learners", "learners (M)", lambda value: str(round(value))),
    "repair": ("Goodput over the time to repair", "mean time until a slice, or a spare, is there", show_long),
    "spares": ("Goodput over spares, rigid job", "spare slices", lambda value: str(round(value))),
    "intervals": ("Goodput over the checkpoint interval, rigid job", "time between two checkpoints", show_long)}
"""Charts: the title, the words at the axis, and how a value is shown."""
