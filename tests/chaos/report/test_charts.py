"""What is drawn fits where it is drawn."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from diloco_chaos.chaos.evidence.timeline import LOOKS, Lanes
from diloco_chaos.chaos.report import charts
from diloco_chaos.chaos.scenario.loading import parse
from diloco_chaos.chaos.scenario.plan import freeze
from recorded_events import an_event


def test_a_stale_incarnation_that_ends_beside_its_successor_is_not_the_end_of_the_learner():
    view = Lanes(freeze(parse("diloco_chaos: 1\nname: s\ncluster: {model: quadratic}\n"), 0))
    view.on_event(an_event(1.0, "harness", 0, "spawn", {"target": "learner-1", "incarnation": 0}))
    view.on_event(an_event(2.0, "harness", 0, "spawn", {"target": "learner-1", "incarnation": 1}))
    view.on_event(an_event(3.0, "harness", 0, "exit", {"target": "learner-1", "incarnation": 0, "killed": True}))
    assert view.nodes["learner-1"].now == "healing"
    view.on_event(an_event(4.0, "learner-1", 1, "exit", {}))
    view.on_event(an_event(5.0, "harness", 0, "exit", {"target": "learner-1", "incarnation": 1, "killed": True}))
    assert view.nodes["learner-1"].now == "killed"


def test_a_syncer_is_starting_until_it_merges():
    view = Lanes(freeze(parse("diloco_chaos: 1\nname: s\ncluster: {model: quadratic}\n"), 0))
    view.on_event(an_event(1.0, "harness", 0, "spawn", {"target": "syncer", "incarnation": 1}))
    view.on_event(an_event(2.0, "syncer", 1, "resumed", {}))
    assert view.nodes["syncer"].now == "healing"
    view.on_event(an_event(3.0, "syncer", 1, "merge", {"contributions": []}))
    assert view.nodes["syncer"].now == "merging"


@given(end=st.floats(0.5, 2000), zero=st.floats(0, 30), width=st.integers(60, 200))
def test_the_seconds_under_a_timeline_fit_its_width_and_are_told_apart(end, zero, width):
    row = charts.scale(0.0, end, zero, width).plain
    assert len(row) <= width
    labels = row.split(" s")
    assert all(label.lstrip(" -").isdigit() for label in labels if label.strip())


def test_a_legend_that_needs_two_lines_stays_under_the_lanes_and_breaks_no_mark_from_its_name():
    view = Lanes(freeze(parse("diloco_chaos: 1\nname: s\ncluster: {model: quadratic}\n"), 0))
    for t, state in enumerate(LOOKS):
        view.nodes["learner-1"].changes.append((float(t), state))
    console = Console(width=60, record=True, file=io.StringIO())
    console.print(charts.legend(view))
    lines = console.export_text().rstrip("\n").split("\n")
    assert len(lines) > 1
    assert all(line.startswith(" " * 11) and line[11] != " " for line in lines)
    shown = " ".join(lines)
    names = [f"{look.mark} {state}" for state, look in LOOKS.items() if state != "done"]
    assert all(name in shown for name in names)


@pytest.mark.parametrize("width", [40, 60, 79, 120])
def test_a_charts_legend_stays_below_its_columns_and_names_every_curve(width):
    looks = dict(zip(["data parallelism", "elastic data parallelism", "streaming", "decoupled"], "+*x#", strict=True))
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(charts.chart([charts.Curve(name, mark, "", [(0.0, 1.0), (5.0, 2.0)])
                                 for name, mark in looks.items()], width - 1, 5, "s"))
    lines = console.export_text().rstrip("\n").split("\n")
    below = lines[next(index for index, line in enumerate(lines) if line.endswith(" 5 s")) + 1:]
    assert all(line.startswith(" " * 11) and line[11] != " " for line in below)
    assert " ".join(" ".join(below).split()) == " ".join(f"{mark} {name}" for name, mark in looks.items())


def test_no_two_states_look_alike_in_a_lane():
    looks = {state: look for state, look in LOOKS.items() if state not in ("serving", "done")}  # as merging; nothing
    assert len({look.mark for look in looks.values()}) == len(looks)
    assert len({look.colour for look in looks.values()}) == len(looks)
