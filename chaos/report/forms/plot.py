"""Lines over a variable, as a drawing that needs nothing else."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from diloco_chaos.chaos.report.forms.drawing import Axis, Tick
from diloco_chaos.chaos.report.forms.page import FONTS, LIGHT, environment
from diloco_chaos.harness.base.extras import MissingExtraError, require

_WIDTH, _HEIGHT, _LEFT, _TOP = 640.0, 420.0, 60.0, 50.0
_LETTER_WIDTH = 6.8
_INKS = ("own", "bad", "good", "third", "other", "cyan", "magenta", "yellow")
_LOGARITHMIC = 4.0
"""Where the largest x is so many times the smallest, the axis is logarithmic."""
_LETTER = ('<svg xmlns="http://www.w3.org/2000/svg" width="20" height="20">'
           f'<text y="15" font-family="{FONTS}">LETTER</text></svg>')


class PlottedShare(NamedTuple):
    """A share, and half of its confidence interval."""

    x: float
    share: float
    half: float


class PlottedLine(NamedTuple):
    """Points that belong together, by x."""

    label: str
    points: Sequence[PlottedShare]


def plot_svg(title: str, x_label: str, lines: Sequence[PlottedLine], show_x: Callable[[float], str]) -> str:
    """Shares of one, 0 to 100%, over x. `show_x`: how people read a value of x."""
    values = sorted({point.x for line in lines for point in line.points})
    places = [math.log(x) for x in values] if values[-1] >= _LOGARITHMIC * values[0] > 0 else values
    across = Axis(places[0], places[-1], _LEFT + 20, _WIDTH - 60)
    up = Axis(0.0, 1.0, _HEIGHT - 50, _TOP)
    at = {x: across(place) for x, place in zip(values, places, strict=True)}
    ends = [up(line.points[-1].share) for line in lines]
    drawn = [{"label": line.label, "ink": _INKS[number % len(_INKS)], "end": end,
              "path": "M" + " L".join(f"{at[point.x]} {up(point.share)}" for point in line.points),
              "marks": [(at[point.x], up(point.share), up(point.share - point.half), up(point.share + point.half))
                        for point in line.points]}
             for number, (line, end) in enumerate(zip(lines, _apart(ends), strict=True))]
    return environment().get_template("plot.svg.j2").render(
        title=title, x_label=x_label, lines=drawn, ink=LIGHT.__getitem__, fonts=FONTS, height=_HEIGHT,
        width=_WIDTH - 30 + _LETTER_WIDTH * max(len(line.label) for line in lines), left=_LEFT,
        top=_TOP, right=across.end + 14, floor=up.start,
        x_ticks=[Tick(at[x], show_x(x)) for x in values],
        y_ticks=[Tick(up(tenth / 10), f"{10 * tenth}%") for tenth in range(0, 11, 2)])


def _apart(places: Sequence[float], least: float = 15.0) -> list[float]:
    """Return the places of labels in SVG units, moved down until they are at least `least` apart."""
    placed, last = list(places), -math.inf
    for number in sorted(range(len(places)), key=places.__getitem__):
        placed[number] = last = max(places[number], last + least)
    return placed


def rasterized(svg: str, wanted: str) -> bytes:
    """An SVG as a PNG, for where no SVG is shown. `wanted`: the option that wants it, as in `--format png`.

    Raises:
        MissingExtraError: resvg-py is not installed, or there is no font to draw letters with.
    """
    require("resvg_py", "png", wanted)
    from resvg_py import svg_to_bytes

    def drawn(text: str) -> bytes:
        return bytes(svg_to_bytes(svg_string=text, zoom=2))
    if drawn(_LETTER) == drawn(_LETTER.replace("LETTER", "")):
        raise MissingExtraError(f"{wanted}: this machine has none of the fonts {FONTS}; install one "
                                f"(Debian: apt install fonts-dejavu-core), or take svg")
    return drawn(svg)
