"""report.html: a run on one page, in one file that needs no network; and its timeline alone, as SVG. Text of others is
escaped by the template engine."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from diloco_chaos.chaos.evidence.timeline import LOOKS
from diloco_chaos.chaos.report.costs import SHOWN, cells, not_told
from diloco_chaos.chaos.report.forms.drawing import (
    LANE,
    LOSS,
    NAME,
    RATE,
    ROW,
    WIDTH,
    Axis,
    bar,
    fault_marks,
    loss,
    rate,
)
from diloco_chaos.chaos.report.model import ReportModel, costs_of
from diloco_chaos.chaos.report.past import Past
from diloco_chaos.chaos.report.story import MARKS, VERDICTS
from diloco_chaos.harness.base.units import show_bytes, show_seconds

PAGE = "report.html"
"""In a run's folder."""
FONTS = "DejaVu Sans, Liberation Sans, Noto Sans, Arial, Helvetica, Verdana"
LIGHT = {"ink": "#1b1f24", "dim": "#5c6570", "paper": "#fff", "card": "#f5f7f9", "line": "#d8dde3", "good": "#1a7f37",
          "bad": "#c5221f", "unsure": "#8a5a00", "fault": "#c5221f22", "own": "#0b62c4", "other": "#8250df",
          "third": "#b35900", "green": "#43a463", "cyan": "#2f8fb5", "yellow": "#b8690f", "blue": "#3b4cc0",
          "magenta": "#a94fc0", "red": "#d03a36", "bright_yellow": "#f2cf5b", "bright_cyan": "#7fd1de",
          "bright_black": "#b4bcc6"}
DARK = {"ink": "#e6e9ed", "dim": "#98a2ae", "paper": "#14171b", "card": "#1d2227", "line": "#343b43",
         "good": "#56d364", "bad": "#ff7b72", "unsure": "#e3b341", "fault": "#ff7b7233", "own": "#6cb2ff",
         "other": "#c69bff", "third": "#ffa657", "bright_black": "#4b545e"}
"""Those of the light page that are others on the dark one."""


def report_html(model: ReportModel, past: Sequence[Past] = ()) -> str:
    """The page; `past`: earlier runs of the same scenario, the oldest first."""
    return environment().get_template("report.html.j2").render(
        **_timeline(model), past=past, loss=loss(model), loss_height=LOSS, marks=MARKS, verdicts=VERDICTS, light=LIGHT,
        dark=DARK, costs=list(costs_of(model)), cost_names=[shown.name for shown in SHOWN.values()], cells=cells,
        not_told=not_told, ink=lambda name: f"var(--{name})", bytes=show_bytes, bar=bar)


def timeline_svg(model: ReportModel) -> str:
    """The timeline as a drawing of its own, on white."""
    return environment().get_template("timeline.svg.j2").render(
        **_timeline(model), ink=LIGHT.__getitem__, fonts=FONTS)


def _timeline(model: ReportModel) -> dict[str, Any]:
    drawn = {span.state for row in model.lanes for span in row.states} - {"done"}
    time = Axis(model.start, max(model.end, model.start + 1e-9), NAME, WIDTH)
    marks = fault_marks(model, time)
    looks = {state: look.colour for state, look in LOOKS.items() if state in drawn}
    return {"model": model, "time": time, "looks": looks, "lane": LANE, "name": NAME, "width": WIDTH,
            "rate": rate(model, time), "rate_height": RATE, "faults": marks, "row": ROW,
            "height": RATE + LANE * len(model.lanes) + 28 + ROW * (1 + max((mark.row for mark in marks), default=-1)),
            "seconds": show_seconds}


@cache
def environment() -> Environment:
    """Return the environment that says where templates are, and how they are read."""
    return Environment(loader=PackageLoader(__package__), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
                       lstrip_blocks=True)
