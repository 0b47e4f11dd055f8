"""A comparison on one page, in one file that needs no network."""

from __future__ import annotations

from dataclasses import dataclass

from diloco_chaos.chaos.report.chance import Estimate
from diloco_chaos.chaos.report.comparison import words
from diloco_chaos.chaos.report.comparison.model import Comparison, Row
from diloco_chaos.chaos.report.forms.page import DARK, LIGHT, environment

_WIDE = 240
_LEAST = 0.25
"""Of what the first way has: the least that half of a line stands for, so that little looks little."""


@dataclass(frozen=True)
class Drawn:
    """An interval as a bar on a line, in the middle of which is zero."""

    low: float
    high: float
    mean: float
    words: str


def comparison_html(comparison: Comparison) -> str:
    """Return the page."""
    return environment().get_template("compare.html.j2").render(
        pairings=comparison.told, place=comparison.place, ways=comparison.ways, words=words, drawn=drawn,
        slower=comparison.alarms, wide=_WIDE, light=LIGHT, dark=DARK,
        notes=words.notes(comparison.told))


def drawn(row: Row) -> Drawn | None:
    """Return a row's difference to be drawn, the better to the right; None where it has no interval."""
    told = row.difference.estimate
    if told is None or told.low is None or told.high is None:
        return None
    was = row.first.estimate.mean if row.first.estimate else 0.0
    most = max(abs(told.low), abs(told.high), _LEAST * abs(was)) or 1.0
    ends = sorted(_at(end, most, row) for end in (told.low, told.high))
    return Drawn(ends[0], ends[1], _at(told.mean, most, row), _said(row, told))


def _at(amount: float, most: float, row: Row) -> float:
    turned = amount if row.more_is_better else -amount
    return round(_WIDE / 2 * (1 + 0.95 * turned / most), 1)


def _said(row: Row, told: Estimate) -> str:
    return f"{words.change(row)}, 95% interval {words.between(row)}, by {told.runs} pairs"
