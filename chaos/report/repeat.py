"""A scenario with many seeds: how often it passes, for scenarios that CI shall rely on."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from diloco_chaos.chaos.evidence.phases import recoveries
from diloco_chaos.chaos.evidence.recovery.costs import costs
from diloco_chaos.chaos.report.chance import Estimate, estimate, wilson
from diloco_chaos.chaos.report.costs import SHOWN
from diloco_chaos.chaos.report.live import Terminal
from diloco_chaos.chaos.report.saved import kept, suite_kept
from diloco_chaos.chaos.report.suite import row_of
from diloco_chaos.chaos.runner.backends import Backend
from diloco_chaos.chaos.runner.run import INCONCLUSIVE, INTERRUPTED, Result, exit_code, run_plan
from diloco_chaos.chaos.scenario.plan import Plan
from diloco_chaos.harness.base.units import show_seconds

_WORDS = {0: ("passed", "green"), 1: ("failed", "bold red"), 3: ("inconclusive", "yellow"),
          130: ("interrupted", "yellow")}

RESOLUTION = 0.001
"""What is measured is stamped to this, seconds; the least that is told of a spread."""


@dataclass
class PassRate:
    """The runs of a scenario, and how each ended: (seed, exit code, folder, what was wrong)."""

    scenario: str
    runs: list[tuple[int, int, str, str]] = field(default_factory=list)
    measured: list[Mapping[str, float | None]] = field(default_factory=list)
    """Of each run that proved something: figure -> what it was; None: it is not told."""

    @property
    def passed(self) -> int:
        """Runs whose every check passed."""
        return sum(code == 0 for _, code, _, _ in self.runs)

    @property
    def judged(self) -> int:
        """Runs that proved something."""
        return sum(code in (0, 1) for _, code, _, _ in self.runs)

    @property
    def figures(self) -> dict[str, tuple[Estimate | None, int]]:
        """Return each figure's mean over the runs, with its interval, and how many runs do not tell it."""
        names = dict.fromkeys(name for run in self.measured for name in run)
        own = {name: [value for run in self.measured if (value := run.get(name)) is not None] for name in names}
        return {name: (estimate(values, RESOLUTION), len(self.measured) - len(values)) for name, values in own.items()}

    @property
    def exit_code(self) -> int:
        """130 if interrupted, 1 if any failed, 3 if any was inconclusive, else 0."""
        return worst(code for _, code, _, _ in self.runs)

    def document(self) -> dict[str, Any]:
        """Return the runs and their pass rate as JSON's types, for programs."""
        low, high = wilson(self.passed, self.judged)
        return {"scenario": self.scenario, "runs": len(self.runs), "judged": self.judged, "passed": self.passed,
                "pass_rate": self.passed / self.judged if self.judged else None, "low": low, "high": high,
                "exit_code": self.exit_code,
                "figures": {name: {**(told._asdict() if told else {"runs": 0}), "not_told": missing}
                            for name, (told, missing) in self.figures.items()},
                "seeds": [{"seed": seed, "exit_code": code, "run": run, "why": why}
                          for seed, code, run, why in self.runs]}


def worst(codes: Iterable[int]) -> int:
    """Return the exit code of several: 130 if any was interrupted, 1 if any failed, 3 if any is open, else 0."""
    present = set(codes)
    return next((code for code in (INTERRUPTED, 1, INCONCLUSIVE) if code in present), 0)


def repeated(plans: Sequence[Plan], runs_dir: Path, console: Console, backend: Backend,
             hear: Callable[[Result], None] = lambda _: None) -> PassRate:
    """Run them one after the other; Ctrl-C ends it with what there is. `hear` gets each run when it is over."""
    rate, rows = PassRate(plans[0].scenario), []
    for number, plan in enumerate(plans, 1):
        with Terminal(console, f"{number} of {len(plans)}", bool(backend.virtual)) as terminal:
            result = kept(run_plan(plan, runs_dir, terminal, backend), "unless passed")
        hear(result)
        rows.append(row_of(result))
        code = exit_code(result)
        bad = [f"{verdict.name} {verdict.verdict}" for verdict in result.judgement.checks
               if verdict.verdict == "failed"] if code == 1 else []
        if code in (0, 1):
            rate.measured.append(measured(result))
        why = ", ".join(bad) or result.judgement.inconclusive or result.outcome.message
        rate.runs.append((plan.seed, code, str(result.folder.path), "" if code == 0 else why))
        word, style = _WORDS[code]
        console.print(Text.assemble(f"seed {plan.seed}: ", (word, style), f"  {why}" if code else ""))
        if code == 130:
            break
    suite_kept(rows)
    return rate


def show(rate: PassRate, console: Console) -> None:
    """The table, and the rate with its interval."""
    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("seed", "verdict", "run"):
        table.add_column(column)
    for seed, code, run, why in rate.runs:
        word, style = _WORDS[code]
        table.add_row(str(seed), Text(word, style), Text("\n".join(filter(None, [run, why]))))
    console.print(table)
    if rate.figures:
        console.print(_figures(rate))
    low, high = wilson(rate.passed, rate.judged)
    left_out = len(rate.runs) - rate.judged
    console.print(f"{rate.scenario}: {rate.passed} of {rate.judged} passed, 95% interval {low:.0%} to {high:.0%}"
                  + (f"; {left_out} proved nothing" if left_out else ""), highlight=False)


def measured(result: Result) -> dict[str, float | None]:
    """Return what all faults of a run cost, and how long after each fault each phase of its recoveries ended."""
    history = result.history
    if not (told := history.once(costs)).faults:
        return {}
    phases = {f"{recovery.span.id} {recovery.target}: {phase.name}": recovery.after(phase.name)
              for recovery in history.once(recoveries) for phase in recovery.phases if phase.ending != "idle"}
    return {name: amount.value for name, amount in told.run.amounts.items()} | phases


def _figures(rate: PassRate) -> Table:
    """Show every figure with its interval; phases are told in seconds after the fault."""
    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("of the faults", "mean", "95% interval", "runs"):
        table.add_column(column, justify="left" if column == "of the faults" else "right")
    for name, (told, missing) in rate.figures.items():
        shown = SHOWN.get(name)
        words = shown.words if shown else show_seconds
        mean, between = ("not told", "") if told is None else (words(told.mean), "one run tells none")
        if told is not None and told.low is not None and told.high is not None:
            most = 1.0 if name == "ettr" else math.inf
            between = f"{words(max(0.0, told.low))} to {words(min(most, told.high))}"
        table.add_row(shown.name if shown else name, mean, between,
                      f"{len(rate.measured) - missing} of {len(rate.measured)}")
    return table
