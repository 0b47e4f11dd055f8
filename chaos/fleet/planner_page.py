"""A planner's page, in one file that needs no network."""

from __future__ import annotations

import math
from typing import Any

from diloco_chaos.chaos.fleet.planning import AXES, CHECKPOINT_S, HOURS_A_YEAR, MODES, Plan
from diloco_chaos.chaos.fleet.tables import count_words, way
from diloco_chaos.chaos.report.forms.page import DARK, LIGHT, environment
from diloco_chaos.chaos.report.forms.plot import PlottedLine, PlottedShare, plot_svg
from diloco_chaos.harness.base.units import show_long, show_seconds
from diloco_chaos.harness.fleet.fleet import Fleet
from diloco_chaos.harness.fleet.replications import Estimate

_INPUTS: tuple[tuple[str, str, str], ...] = (
    ("job size", "chips", "of the whole fleet"), ("failure unit", "slice_chips", "chips that one interruption takes"),
    ("MTBF", "mtbf", "of a chip"), ("repair time", "repair", "mean, until a slice or a spare is there"),
    ("spare pool", "spares", "of a rigid job; none given: always one more"),
    ("learners", "learners", "M, of decoupled"),
    ("detection time", "detection", ""), ("reconfiguration, down", "shrink", "for which a group stands"),
    ("reconfiguration, up", "grow", "for which a group stands"),
    ("growth batching", "grow_within", "returns within it share one pause"),
    ("restart (recovery) time", "restart", "mean, of a rigid job"),
    ("checkpoint interval", "checkpoint_every", "0: nothing is ever lost"),
    ("checkpoint time", "checkpoint_cost", "for which a rigid job stands"))
"""A name of the field, the setting, and what it is of."""
_DURATIONS = ("mtbf", "repair", "detection", "shrink", "grow", "grow_within", "restart", "checkpoint_every",
              "checkpoint_cost")


def planner_html(plan: Plan, days: float, replications: int) -> str:
    """Return the page."""
    return environment().get_template("fleet.html.j2").render(
        plan=plan, modes=MODES, charts=_charts(plan), inputs=_inputs(plan.base), process=_process(plan.base),
        days=days, replications=replications, light=LIGHT, dark=DARK, chips=count_words, share=_share,
        money=_money, points=_points, traced=_traced(plan), year=HOURS_A_YEAR,
        name={mode: way(plan.base.model_copy(update={"mode": mode})) for mode in MODES})


def _charts(plan: Plan) -> list[str]:
    """Return a drawing for each axis of which there are several points."""
    drawn = []
    for part, (title, words, shown) in AXES.items():
        lines: dict[str, list[PlottedShare]] = {}
        for asked, summary in plan.of(part):
            lines.setdefault(asked.line, []).append(PlottedShare(asked.x, summary.goodput.mean,
                                                                 summary.goodput.half or 0.0))
        if part == "intervals":
            title += f" (a checkpoint takes {show_seconds(plan.base.checkpoint_cost or CHECKPOINT_S)})"
        if max(map(len, lines.values()), default=0) > 1:
            drawn.append(plot_svg(title, words, [PlottedLine(*line) for line in lines.items()], shown))
    return drawn


def _inputs(base: Fleet) -> list[tuple[str, str, str]]:
    rows = []
    for name, setting, words in _INPUTS:
        value = getattr(base, setting)
        shown = (show_long(value) if setting in _DURATIONS and value else "always one more" if value is None else
                 count_words(value))
        rows.append((name, shown, words))
    return rows


def _process(base: Fleet) -> str:
    """Return how slices fail, in words."""
    if base.process is None:
        return ("Slices fail independently of each other, after exponential times." if base.shape == 1 else
                f"Slices fail independently of each other, after Weibull times of shape {base.shape:g}.")
    settings = base.process.model_dump(mode="json", exclude_defaults=True)
    flow = ", ".join(f"{name} {_setting(value)}" for name, value in settings.items())
    return f"Slices fail by a process with a history: {flow or 'all alike'}."


def _setting(value: Any) -> str:
    if isinstance(value, str) and value[:1].isdigit():
        return show_long(float(value.rstrip("s")))
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _traced(plan: Plan) -> tuple[float, float] | None:
    """Return the range of goodput over traces like the one given."""
    values = sorted(summary.goodput.mean for summary in plan.by_trace)
    return (values[0], values[-1]) if values else None


def _share(value: Estimate) -> str:
    return f"{value.mean:.1%}" + (f" ± {100 * value.half:.1f}" if value.half is not None else "")


def _points(value: float) -> str:
    return "" if math.isnan(value) else f"{round(value, 1) + 0.0:+.1f}"


def _money(value: float) -> str:
    for unit, size in (("billion", 1e9), ("million", 1e6), ("thousand", 1e3)):
        if abs(value) >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:.3g}"
