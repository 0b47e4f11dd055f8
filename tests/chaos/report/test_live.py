"""What a person sees while a run goes on fits the terminal, and tells who is in trouble."""

import io

import pytest
from rich.console import Console
from rich.live import Live
from rich.text import Text

from diloco_chaos.chaos.report.live import LiveView, PlainView, Terminal
from diloco_chaos.chaos.scenario.loading import parse
from diloco_chaos.chaos.scenario.plan import freeze
from recorded_events import an_event

MANY = """diloco_chaos: 1
name: many
cluster: {learners: 32, budget: 900}
deadline: 90s
faults:
  - {pause: learner-30, at: 4s, for: 20s}
  - {kill: learner-2, at: 5s, restart_after: 20s}
  - {latency: learner-7, at: 30s, for: 5s, delay: 5ms}
"""


def harness(t, event, **fields):
    return an_event(t, "harness", 0, event, fields)


def story(plan):
    yield from (harness(0.1, "spawn", target=name, incarnation=0) for name in plan.cluster.all_nodes)
    yield from (an_event(2.0, name, 0, "step", {"step": 1, "tokens": 1, "loss": 3.0}) for name in plan.cluster.names)
    parts = [{"learner": name, "incarnation": 0} for name in plan.cluster.names]
    yield an_event(2.5, "syncer", 0, "merge", {"contributions": parts, "processed": 64})
    yield an_event(2.5, "syncer", 0, "steady", {"step": 1})
    yield harness(6.5, "injecting", fault="f1", kind="pause", targets=["learner-30"], description="pause learner-30")
    yield harness(7.5, "injecting", fault="f2", kind="kill", targets=["learner-2"], description="kill learner-2")
    yield harness(7.6, "exit", target="learner-2", incarnation=0, killed=True)


@pytest.fixture
def plan():
    return freeze(parse(MANY), 0)


def drawn(plan, height):
    console = Console(file=io.StringIO(), width=80, height=height, no_color=True, force_terminal=True)
    view = LiveView(console, plan, "run", Live(console=console, auto_refresh=False))
    for event in story(plan):
        view.on_event(event)
    with console.capture() as captured:
        console.print(view._render(12.0))
    return Text.from_ansi(captured.get()).plain.rstrip().splitlines()


@pytest.mark.parametrize("height", [24, 30, 60])
def test_it_fits_and_nothing_below_the_nodes_is_cropped(plan, height):
    lines = drawn(plan, height)
    assert len(lines) <= height
    assert all(len(line) <= 80 for line in lines)
    assert lines[-1].endswith("f2: kill learner-2")
    assert any(line.startswith("next: f3 learner-7 +5 ms") for line in lines)
    assert any("deadline in 78.0 s" in line for line in lines)


def test_who_is_in_trouble_has_a_line_and_the_others_are_counted(plan):
    lines = drawn(plan, 24)
    names = [line.split()[0] for line in lines[1:12]]
    assert {"learner-2", "learner-30"} <= set(names)
    assert "x" in next(line for line in lines if line.startswith("learner-2 "))
    assert next(line for line in lines if line.startswith("others")).split(maxsplit=1)[1] == "23 training"


def test_times_are_since_the_steady_state_and_before_it_since_the_start(plan):
    out = io.StringIO()
    view = PlainView(Console(file=out, width=80), plan, "run")
    view.on_tick(5.0)
    for event in story(plan):
        view.on_event(event)
    assert out.getvalue().splitlines()[1:] == [
        "start+ 5 s    0%  no loss yet",
        "    0.00 s  steady state: everybody has taken part",
        "    4.00 s  f1: pause learner-30",
        "    5.00 s  f2: kill learner-2"]


def virtual(plan, clock, monkeypatch):
    monkeypatch.setattr("diloco_chaos.chaos.report.live.time.monotonic", lambda: clock[0])
    console = Console(file=io.StringIO(), width=100, height=40, no_color=True, force_terminal=True)
    view = LiveView(console, plan, "the run, 2 of 5", Live(console=console, auto_refresh=False), virtual=True)
    for event in story(plan):
        view.on_event(event)
    clock[0] += 24.0  # somebody has waited twice as long as the simulation went on
    half = 64 + plan.cluster.budget_tokens // 2
    view.on_event(an_event(12.0, "syncer", 0, "merge", {"contributions": [], "processed": half}))
    with console.capture() as captured:
        console.print(view._render(12.0))
    return Text.from_ansi(captured.get()).plain


def test_under_virtual_time_both_clocks_are_shown_and_what_is_left_is_in_yours(plan, monkeypatch):
    text = virtual(plan, [100.0], monkeypatch)
    assert "many: the run, 2 of 5\nvirtual time 12.0 s, yours 24.0 s\n" in text.replace(" \n", "\n")
    assert "of virtual time" in text
    assert "19.0 s left" in text, "9.5 s of the simulation, each of which takes two"


def test_in_a_log_lines_come_by_the_clock_of_whoever_reads_it(plan, monkeypatch):
    clock, out = [0.0], io.StringIO()
    monkeypatch.setattr("diloco_chaos.chaos.report.live.time.monotonic", lambda: clock[0])
    view = PlainView(Console(file=out, width=80), plan, "run", virtual=True)
    for now in range(60):  # a simulation that is quicker
        clock[0] = now / 10
        view.on_tick(float(now))
    assert len(out.getvalue().splitlines()) == 2
    for now in range(60, 65):  # and one that is slower
        clock[0] += 6.0
        view.on_tick(float(now))
    assert len(out.getvalue().splitlines()) == 7


@pytest.mark.parametrize("terminal", [True, False])
def test_how_far_measuring_is_stands_in_a_terminal_and_nowhere_else(terminal):
    console = Console(file=io.StringIO(), width=80, force_terminal=terminal)
    with Terminal(console) as view:
        view.say("measuring the held-out loss")
        for done in (1, 2, 3):
            view.far(done, 12)
        assert view._bar is None or view._bar.tasks[0].completed == 3
    text = console.file.getvalue()
    assert ("3/12" in text.replace(" ", "")) == terminal
    assert "measuring the held-out loss" in text
