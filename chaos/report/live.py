"""What a person sees while a run goes on: lanes in a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from types import TracebackType

import rich.progress
from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from diloco_chaos.chaos.evidence.timeline import Lanes
from diloco_chaos.chaos.report import charts
from diloco_chaos.chaos.runner.experiment import Observer
from diloco_chaos.chaos.runner.orchestrator import SmoothedLoss
from diloco_chaos.chaos.scenario.plan import Plan
from diloco_chaos.harness.base.errors import printable
from diloco_chaos.harness.base.units import show_seconds
from diloco_chaos.harness.record.tape.events import (
    Aborted,
    Event,
    Failpoint,
    Finished,
    Healed,
    Injecting,
    Merge,
    PartialFrame,
    Repaired,
    Resumed,
    Sighted,
    Spawn,
    Steady,
    Step,
    Superseded,
)

_OTHER_LINES = 13
"""Of a terminal, for all but the nodes: titles, faults, axis, two of the legend, numbers, what comes next, events."""
_REFRESH_S = 0.12
_LINE_EVERY_S = 5.0
_LOSS_WEIGHT = 0.1
_TITLES = {"synchronous": "synchronous reference", "fault-free": "fault-free baseline", "run": "the run"}


class Progress:
    """Numbers that both views show, from the events alone."""

    def __init__(self, plan: Plan, virtual: bool = False) -> None:
        self.plan, self.virtual = plan, virtual
        self._began = time.monotonic()
        self.lanes = Lanes(plan)
        self.zero: float | None = None
        self.processed = plan.cluster.begun_tokens
        self._loss = SmoothedLoss(_LOSS_WEIGHT, always_told=bool(plan.trainer.writers))
        self.contributors: list[int] = []
        self._ranks: dict[str, set[str]] = {}  # of each worker whose ranks are told apart
        self.merges = 0
        self._first: tuple[float, int] | None = None

    def on_event(self, event: Event) -> None:
        """Take in one event."""
        self.lanes.on_event(event)
        if isinstance(event, Steady):
            self.zero = event.t if self.zero is None else self.zero
        elif isinstance(event, Merge):
            self.processed = max(self.processed, event.processed)
            self._first = self._first or (event.t, self.processed)
            self.merges += 1
            self.contributors = [*self.contributors[-49:], len(event.contributions)]
            for part in event.contributions:
                if part.rank is not None:
                    self._ranks.setdefault(part.learner, set()).add(part.rank)
        elif isinstance(event, Step):
            self._loss.on_step(event)

    def clock(self, t: float) -> str:
        """A time of the run as reports have it: since the steady state; before it, since the start."""
        return f"start+{t:2.0f} s" if self.zero is None else f"{t - self.zero:8.2f} s"

    @property
    def share(self) -> float:
        """Return how much of the budget that this run adds is done, from 0 to 1."""
        cluster = self.plan.cluster
        begun = cluster.begun_tokens
        return min(1.0, max(0.0, (self.processed - begun) / max(1, cluster.budget_tokens - begun)))

    def left(self, now: float) -> float | None:
        """Seconds of the run's own clock left at the rate so far."""
        if self._first is None or self.processed <= self._first[1]:
            return None
        rate = (self.processed - self._first[1]) / max(1e-9, now - self._first[0])
        return max(0.0, (self.plan.cluster.budget_tokens - self.processed) / rate)

    @property
    def waited(self) -> float:
        """Seconds that somebody who looks at it has waited."""
        return time.monotonic() - self._began

    def to_wait(self, now: float) -> float | None:
        """Seconds that somebody has to wait yet: under virtual time those go by at another pace."""
        left = self.left(now)
        return left if left is None or not self.virtual else left * self.waited / max(1e-9, now)

    @property
    def loss(self) -> float | None:
        """Smoothed training loss, mean over the learners."""
        return self._loss.value

    def describe(self) -> str:
        """One line for a log."""
        loss = f"train loss {self.loss:.3f}" if self.loss is not None else "no loss yet"
        per = self.plan.trainer.counting.contributors
        members = sum(max(1, self.plan.trainer.ranks_of(name), len(self._ranks.get(name, ())))
                      for name in self.plan.cluster.names)
        parts = f", {sum(self.contributors) / len(self.contributors):.1f} of {members} {per}" \
            if self.contributors else ""
        return f"{self.share:4.0%}  {loss}{parts}"


class PlainView:
    """Implements `Observer` for logs: what happens, and every five seconds how far it is."""

    def __init__(self, console: Console, plan: Plan, title: str, virtual: bool = False) -> None:
        self._console, self._progress, self._said = console, Progress(plan, virtual), 0.0
        console.print(f"[{title}]", markup=False, highlight=False)

    def on_event(self, event: Event) -> None:
        """Say what matters."""
        self._progress.on_event(event)
        text = _announce(event)
        if text:
            self._print(event.t, text)

    def on_tick(self, now: float) -> None:
        """Say how far it is."""
        passed = self._progress.waited if self._progress.virtual else now
        if passed - self._said >= _LINE_EVERY_S:
            self._said = passed
            left = self._progress.to_wait(now)
            waits = f", about {show_seconds(left)} to wait" if self._progress.virtual and left is not None else ""
            self._print(now, self._progress.describe() + waits)

    def _print(self, t: float, text: str) -> None:
        self._console.print(f"{self._progress.clock(t)}  {text}", markup=False, highlight=False, soft_wrap=True)


def _announce(event: Event) -> str:
    match event:
        case Steady():
            return "steady state: everybody has taken part"
        case Injecting():
            return f"{event.fault}: {event.description}"
        case Healed():
            return f"{event.fault}: undone"
        case Failpoint():
            return f"{event.node} stopped at failpoint {event.point}"
        case Sighted():
            return f"{event.fault}: seen at {event.target}: {event.seen}"
        case Spawn() if event.incarnation:
            return f"{event.target} started again"
        case PartialFrame():
            return f"{event.peer}: {event.bytes} of {event.expected} bytes of a frame arrived"
        case Aborted():
            return f"aborted: {event.why}; undoing everything"
        case Repaired():
            return f"{event.file} made good from its other copy: {event.reason}"
        case Superseded():
            return f"{event.node}.{event.inc} sees that it is superseded, and ends"
        case Resumed():
            return "the syncer resumed from what it had committed"
        case Finished() if event.processed is not None:  # learners tell of their own tokens
            return "everybody has ended, before training was over" if event.early else "training is over"
    return ""


class LiveView:
    """Implements `Observer` for terminals: lanes by colour, fault marks, loss, participation, progress."""

    def __init__(self, console: Console, plan: Plan, title: str, live: Live, virtual: bool = False) -> None:
        self._console, self._progress, self._title, self._live = console, Progress(plan, virtual), title, live
        self._last: list[str] = []
        self._drawn = 0.0

    def on_event(self, event: Event) -> None:
        """Take it in; the next tick draws it."""
        self._progress.on_event(event)
        if (text := _announce(event)):
            self._last = [*self._last[-2:], f"{self._progress.clock(event.t)}  {text}"]

    def on_tick(self, now: float) -> None:
        """Draw, at most eight times a second."""
        if time.monotonic() - self._drawn >= _REFRESH_S:
            self._drawn = time.monotonic()
            self._live.update(self._render(now), refresh=True)

    def _render(self, now: float) -> Group:
        progress = self._progress
        width = min(self._console.width, 110) - 1
        cluster = progress.plan.cluster
        nominal = cluster.nominal_s + 6
        left, to_wait = progress.left(now), progress.to_wait(now)
        end = max(now + (left or 0), now if left else nominal, 10.0)
        bar = Table.grid(padding=(0, 1))
        bar.add_row(Text(f"{progress.share:4.0%}"), ProgressBar(1.0, progress.share, width=max(10, width - 26)),
                    Text("starting" if to_wait is None else f"{show_seconds(to_wait)} left", style="dim"))
        numbers = Text(progress.describe()[6:], style="bold")
        numbers.append(f"   {progress.merges} {'merges' if cluster.exchanges_fragments else 'steps'}", style="dim")
        numbers.append(f"   deadline in {show_seconds(max(0.0, progress.plan.deadline - now))}"
                       f"{' of virtual time' if progress.virtual else ''}", style="dim")
        clocks = [Text(f"virtual time {now:.1f} s, yours {progress.waited:.1f} s", style="dim")] \
            if progress.virtual else []
        axis = [] if progress.zero is None else [charts.scale(0.0, end, progress.zero, width)]
        return Group(
            Text(f"{progress.plan.scenario}: {self._title}", style="bold"), *clocks,
            charts.lanes(progress.lanes, 0.0, end, width, until=now,
                         most=max(3, self._console.height - _OTHER_LINES - len(clocks))),
            *axis, charts.legend(progress.lanes), Text(), numbers, bar, Text(self._next()[:width], style="dim"),
            *(Text(line[:width], style="dim") for line in self._last))

    def _next(self) -> str:
        """The first fault that has not come."""
        come = {name for _, name, _ in self._progress.lanes.marks}
        return next((f"next: {planned.id} {planned.describe()}, {planned.fault.describe_trigger()}"
                     for planned in self._progress.plan.faults if planned.id not in come), "")


class Terminal:
    """Implements `chaos.runner.run.Audience`: lanes where somebody looks at a terminal, plain lines elsewhere.

    Args:
        which: of several runs, as in "2 of 5"; it stands in every title.
        virtual: whether the seconds of the run are those of a simulation.
    """

    def __init__(self, console: Console, which: str = "", virtual: bool = False) -> None:
        self._console, self._which, self._virtual = console, which, virtual
        self._live: Live | None = None
        self._bar: rich.progress.Progress | None = None

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 traceback: TracebackType | None) -> None:
        self._stop()

    def watch(self, plan: Plan, what: str) -> Observer:
        """A view of the next run."""
        self._stop()
        title = f"{_TITLES[what]}, {self._which}" if self._which else _TITLES[what]
        if not self._console.is_terminal:
            return PlainView(self._console, plan, title, self._virtual)
        self._live = Live(console=self._console, auto_refresh=False, transient=True)
        self._live.start()
        return LiveView(self._console, plan, title, self._live, self._virtual)

    def far(self, done: int, of: int) -> None:
        """Show how far the run is with what it said last."""
        if not self._console.is_terminal:
            return
        if self._bar is None:
            self._bar = counting(self._console, of)
            self._bar.start()
        self._bar.update(self._bar.task_ids[0], completed=done)

    def say(self, text: str) -> None:
        """One line about what comes next."""
        self._stop()
        self._console.print(f"· {printable(text)}", style="dim", markup=False, highlight=False)

    def _stop(self) -> None:
        for shown in (self._live, self._bar):
            if shown is not None:
                shown.stop()
        self._live = self._bar = None


def counting(console: Console, of: int) -> rich.progress.Progress:
    """A line that is gone afterwards: so many of so many, and how long it still takes. It has one task."""
    bar = rich.progress.Progress(rich.progress.MofNCompleteColumn(), rich.progress.BarColumn(bar_width=None),
                                 rich.progress.TimeRemainingColumn(elapsed_when_finished=True), console=console,
                                 transient=True)
    bar.add_task("", total=of)
    return bar


class NullAudience:
    """Implements `diloco_chaos.chaos.runner.run.Audience` and `Observer` for programs: nobody watches."""

    def watch(self, plan: Plan, what: str) -> Observer:
        """Nobody."""
        return self

    def say(self, text: str) -> None:
        """Say nothing."""

    def far(self, done: int, of: int) -> None:
        """Show nothing."""

    def on_event(self, event: Event) -> None:
        """Do nothing."""

    def on_tick(self, now: float) -> None:
        """Do nothing."""
