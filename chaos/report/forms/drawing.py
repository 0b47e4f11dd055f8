"""Where things are drawn on a page: axes, paths, and how much of a bound is used, in SVG user units."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import NamedTuple

from diloco_chaos.chaos.checks.base import Figure
from diloco_chaos.chaos.report.model import CurveTold, FaultTold, ReportModel
from diloco_chaos.harness.base.units import shortened

WIDTH, NAME, LANE = 1000.0, 110.0, 18.0
"""Of a drawing: its width, that of names left of it, the height of a lane."""
ROW = 28.0
"""Height of a row of faults."""
RATE, LOSS = 90.0, 220.0
"""Heights of the charts."""
_TICKS = 8
_STEPS = (1, 2, 5)
_LETTER, _LONGEST = 6.4, 90
"""Width of a letter, and how many a fault's label has at the most."""
_BAR, _BEYOND = 100.0, 1.5
"""Width of a bar, and how much of a bound it has room for."""


class Tick(NamedTuple):
    """A mark at an axis."""

    at: float
    text: str


class Axis(NamedTuple):
    """A scale that maps values to places."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """Return the place of a value; one beyond an end is at the end."""
        share = (value - self.low) / ((self.high - self.low) or 1.0)
        return round(self.start + min(1.0, max(0.0, share)) * (self.end - self.start), 2)

    def ticks(self, most: int = _TICKS) -> list[Tick]:
        """Return round numbers on this axis, about `most` of them, each with its place."""
        raw = ((self.high - self.low) or 1.0) / most
        power = 10.0 ** math.floor(math.log10(raw))
        step = next((factor * power for factor in _STEPS if factor * power >= raw), 10 * power)
        first = math.ceil(self.low / step)
        return [Tick(self(number * step), f"{number * step:g}")
                for number in range(first, math.floor(self.high / step) + 1)]


class DrawnRate(NamedTuple):
    """Merges a second, and the mean of those who had part in them, as SVG paths."""

    rate: str
    contributors: str
    up: Axis
    people: Axis
    quorum: float


def rate(model: ReportModel, time: Axis) -> DrawnRate:
    """Draw the two curves above the lanes: merges a second, and mean contributors of a merge."""
    most = max((window.rate for window in model.merges), default=0.0) or 1.0
    nodes = max([model.quorum, *(math.ceil(window.contributors) for window in model.merges)])
    up, people = Axis(0.0, most, RATE, 6.0), Axis(0.0, nodes, RATE, 6.0)
    middles = [(window.start + window.end) / 2 for window in model.merges]
    together = groupby(zip(middles, model.merges, strict=True), key=lambda point: point[1].contributors > 0)
    parts = [_path([(time(t), people(window.contributors)) for t, window in group])
             for merging, group in together if merging]
    return DrawnRate(_path([(time(t), up(window.rate)) for t, window in zip(middles, model.merges, strict=True)]),
                     "".join(parts), up, people, people(model.quorum))


class Mark(NamedTuple):
    """The place where a fault is drawn below the lanes: its row, and its label, which no other covers."""

    fault: FaultTold
    row: int
    label: str
    at: float
    anchor: str


def fault_marks(model: ReportModel, time: Axis) -> list[Mark]:
    """Faults that came or were due at a time, in as few rows as their labels need."""
    marks: list[Mark] = []
    ends: list[float] = []
    for fault in model.faults:
        times = [t for t in (fault.began, fault.ended, *(fault.planned or ())) if t is not None]
        if not times:
            continue
        label = shortened(f"{fault.id} {fault.requested}", _LONGEST)
        left, width = time(min(times)), _LETTER * len(label)
        turned = left + width > time.end
        first, last = (min(left, time.end - width), time.end) if turned else (left, max(left + width, time(max(times))))
        row = next((number for number, end in enumerate(ends) if end < first), len(ends))
        ends[row:row + 1] = [last]
        marks.append(Mark(fault, row, label, time.end if turned else left, "end" if turned else "start"))
    return marks


class DrawnCurve(NamedTuple):
    """A curve."""

    name: str
    path: str
    last: float


class Loss(NamedTuple):
    """Curves of the loss, and that of this run less a reference, by what was processed."""

    lines: list[DrawnCurve]
    across: Axis
    up: Axis
    difference: str
    """Path of this run's loss less the first reference's, where both are known."""
    between: Axis
    against: str


def loss(model: ReportModel) -> Loss | None:
    """The curves; None where there are none."""
    if not model.curves:
        return None
    points = [point for curve in model.curves for point in curve.points]
    scale = 1.0 if model.loss_by == "rounds" else 1e6
    across = Axis(0.0, max(x for x, _ in points) / scale or 1.0, 50.0, WIDTH)
    up = Axis(min(y for _, y in points), max(y for _, y in points), LOSS - 20, 8.0)
    lines = [DrawnCurve(curve.name, _path([(across(x / scale), up(y)) for x, y in curve.points]), curve.points[-1][1])
             for curve in model.curves]
    own, *others = model.curves
    apart = _apart(own, others[0]) if others and own.name == "this run" else []
    most = max((abs(y) for _, y in apart), default=0.0) or 1.0
    between = Axis(-most, most, 70.0, 6.0)
    return Loss(lines, across, up, _path([(across(x / scale), between(y)) for x, y in apart]), between,
                others[0].name if apart else "")


def _apart(own: CurveTold, other: CurveTold) -> list[tuple[float, float]]:
    """Own loss less the other's, between whose points is gone in straight lines."""
    at = _between(other.points)
    low, high = other.points[0][0], other.points[-1][0]
    return [(x, y - at(x)) for x, y in own.points if low <= x <= high]


def _between(points: Sequence[tuple[float, float]]) -> Callable[[float], float]:
    def at(x: float) -> float:
        after = next((index for index, (place, _) in enumerate(points) if place >= x), len(points) - 1)
        (left, low), (right, high) = points[max(0, after - 1)], points[after]
        return high if right == left else low + (high - low) * (x - left) / (right - left)
    return at


def _path(points: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:g} {y:g}" for x, y in points) if points else ""


class Bar(NamedTuple):
    """The bar of a figure: how much of the room to its limit it uses, and where the limit is."""

    width: float
    limit: float
    words: str


def bar(figure: Figure | None) -> Bar | None:
    """Return the bar of a check's tightest figure; None where the figure has no room, or is about no number."""
    if figure is None or figure.used is None:
        return None
    used = min(figure.used, _BEYOND)
    words = "beyond any limit" if math.isinf(figure.used) else f"{figure.used:.0%} of the room to the limit is used"
    return Bar(round(used / _BEYOND * _BAR, 1), round(_BAR / _BEYOND, 1), words)
