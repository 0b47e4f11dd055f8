"""The chart: trainers by faults, how soon training was what it was before."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

from benchmarks.league.cells import Cell, cells
from benchmarks.league.faults import FAULTS
from benchmarks.league.page import Kept, rendered_svg
from benchmarks.league.performing import Run

_LEFT, _TOP, _WIDTH, _HEIGHT = 200, 96, 64, 24
_SLOW_S = 60.0
_MARKS = {"passed": "✓", "failed": "✗", "nothing": "?"}


class Square(NamedTuple):
    """A cell, drawn."""

    x: int
    y: int
    look: str
    """Class of its style."""
    shade: float
    """How strong its colour is, from 0 to 1."""
    text: str
    title: str


class Label(NamedTuple):
    """Words beside the squares."""

    x: float
    y: float
    text: str


def chart(kept: Kept) -> str:
    """Return docs/league.svg."""
    order = list(dict.fromkeys((cell.contestant.title, cell.variant) for cell in cells()))
    columns = {fault.name: number for number, fault in enumerate(FAULTS)}
    squares = [square(cell, kept.get(cell.key, ()), _LEFT + columns[cell.fault.name] * _WIDTH,
                      _TOP + order.index((cell.contestant.title, cell.variant)) * _HEIGHT) for cell in cells()]
    return rendered_svg(
        "league.svg.j2", squares=squares, width=_LEFT + len(FAULTS) * _WIDTH + 100,
        height=_TOP + len(order) * _HEIGHT + 56, cell_width=_WIDTH - 2, cell_height=_HEIGHT - 2,
        rows=[Label(_LEFT - 8, _TOP + number * _HEIGHT + 15, f"{title}, {variant}")
              for number, (title, variant) in enumerate(order)],
        columns=[Label(_LEFT + (number + 0.4) * _WIDTH, _TOP - 8, fault.title) for number, fault in enumerate(FAULTS)],
        legend=_TOP + len(order) * _HEIGHT + 24)


def square(cell: Cell, runs: Sequence[Run], x: int, y: int) -> Square:
    """Return a cell as it is drawn: the median of its recoveries, and the worst of its verdicts."""
    where = f"{cell.contestant.title}, {cell.variant}, {cell.fault.title}"
    if cell.absent is not None:
        return Square(x, y, "absent", 0.0, "-", f"{where}: {cell.absent.words}")
    if not runs:
        return Square(x, y, "open", 0.0, "", f"{where}: not run yet")
    recovered = [run.recovered for run in runs if run.recovered is not None]
    words = f"{median(recovered):.1f} s" if len(recovered) == len(runs) else "never" if not recovered else "not always"
    verdicts = {run.verdict for run in runs}
    look = "failed" if "FAILED" in verdicts else "passed" if verdicts == {"PASSED"} else "nothing"
    slow = min(1.0, median(recovered) / _SLOW_S) if recovered else 1.0
    return Square(x, y, look, round(0.25 + 0.6 * slow, 2), f"{_MARKS[look]} {words}",
                  f"{where}: {words}, {', '.join(sorted(verdicts))}")
