"""Quantiles of what was seen against those of what a model draws, as a drawing that needs nothing else."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from diloco_chaos.chaos.report.forms.drawing import Axis, Tick
from diloco_chaos.chaos.report.forms.page import FONTS, LIGHT, environment

_PANEL, _LEFT, _TOP, _BETWEEN, _BELOW = 260.0, 64.0, 76.0, 70.0, 52.0
_INKS = ("own", "bad", "good")
_BAND = 0.18
"""How opaque the band of a model's replications is."""


class DrawnQuantiles(NamedTuple):
    """Quantiles of a model, all above 0, for the shares at which the seen ones were taken."""

    label: str
    middle: Sequence[float]
    low: Sequence[float]
    """Nine of ten replications lie between this"""
    high: Sequence[float]
    """and this."""


class QuantilePanel(NamedTuple):
    """One quantity."""

    title: str
    seen: Sequence[float]
    """Quantiles, ascending, all above 0."""
    drawn: Sequence[DrawnQuantiles]
    marks: Mapping[float, str]
    """Values at which the axes have marks, in words."""


def quantiles_svg(title: str, panels: Sequence[QuantilePanel]) -> str:
    """Panels side by side, with logarithmic axes: what was seen across, what models draw up. On the diagonal both are
    the same."""
    placed = [_panel(panel, _LEFT + number * (_PANEL + _BETWEEN)) for number, panel in enumerate(panels)]
    labels = [drawn.label for drawn in panels[0].drawn]
    return environment().get_template("quantiles.svg.j2").render(
        title=title, panels=placed, ink=LIGHT.__getitem__, fonts=FONTS, left=_LEFT, top=_TOP, band=_BAND,
        legend=list(zip(labels, _INKS, strict=False)), width=_LEFT + len(panels) * (_PANEL + _BETWEEN) - 30,
        height=_TOP + _PANEL + _BELOW, floor=_TOP + _PANEL)


def _panel(panel: QuantilePanel, left: float) -> dict[str, Any]:
    values = [*panel.seen, *(value for drawn in panel.drawn for value in (*drawn.low, *drawn.high))]
    low, high = math.log(min(values)), math.log(max(values))
    across, up = Axis(low, high, left, left + _PANEL), Axis(low, high, _TOP + _PANEL, _TOP)
    marks = {value: text for value, text in panel.marks.items() if low <= math.log(value) <= high}
    places = [across(math.log(value)) for value in panel.seen]

    def path(quantiles: Sequence[float]) -> list[str]:
        return [f"{x} {up(math.log(value))}" for x, value in zip(places, quantiles, strict=True)]
    return {
        "title": panel.title, "left": left, "right": left + _PANEL,
        "diagonal": f"M{left} {up.start} L{left + _PANEL} {_TOP}",
        "x_ticks": [Tick(across(math.log(value)), text) for value, text in marks.items()],
        "y_ticks": [Tick(up(math.log(value)), text) for value, text in marks.items()],
        "lines": [{"ink": ink, "path": "M" + " L".join(path(drawn.middle)),
                   "band": "M" + " L".join(path(drawn.low) + path(drawn.high)[::-1]) + " Z",
                   "marks": [tuple(map(float, point.split())) for point in path(drawn.middle)]}
                  for drawn, ink in zip(panel.drawn, _INKS, strict=False)]}
