"""A scenario with many seeds: how often it passes, for scenarios that CI shall rely on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from diloco_chaos.chaos.report.chance import wilson
from diloco_chaos.chaos.report.live import Terminal
from diloco_chaos.chaos.report.saved import kept, suite_kept
from diloco_chaos.chaos.report.suite import row_of
from diloco_chaos.chaos.runner.backends import Backend
from diloco_chaos.chaos.runner.run import exit_code, run_plan
from diloco_chaos.chaos.scenario.plan import Plan

_WORDS = {0: ("passed", "green"), 1: ("failed", "bold red"), 3: ("inconclusive", "yellow"),
          130: ("interrupted", "yellow")}


@dataclass
class PassRate:
    """The runs of a scenario, and how each ended: (seed, exit code, folder, what was wrong)."""

    scenario: str
    runs: list[tuple[int, int, str, str]] = field(default_factory=list)

    @property
    def passed(self) -> int:
        """Runs whose every check passed."""
        return sum(code == 0 for _, code, _, _ in self.runs)

    @property
    def judged(self) -> int:
        """Runs that proved something."""
        return sum(code in (0, 1) for _, code, _, _ in self.runs)

    @property
    def exit_code(self) -> int:
        """130 if interrupted, 1 if any failed, 3 if any was inconclusive, else 0."""
        codes = {code for _, code, _, _ in self.runs}
        return next((code for code in (130, 1, 3) if code in codes), 0)

    def document(self) -> dict[str, Any]:
        """Return the runs and their pass rate as JSON's types, for programs."""
        low, high = wilson(self.passed, self.judged)
        return {"scenario": self.scenario, "runs": len(self.runs), "judged": self.judged, "passed": self.passed,
                "pass_rate": self.passed / self.judged if self.judged else None, "low": low, "high": high,
                "exit_code": self.exit_code,
                "seeds": [{"seed": seed, "exit_code": code, "run": run, "why": why}
                          for seed, code, run, why in self.runs]}


def repeated(plans: Sequence[Plan], runs_dir: Path, console: Console, backend: Backend) -> PassRate:
    """Run them one after the other; Ctrl-C ends it with what there is."""
    rate, rows = PassRate(plans[0].scenario), []
    for number, plan in enumerate(plans, 1):
        with Terminal(console, f"{number} of {len(plans)}", bool(backend.virtual)) as terminal:
            result = kept(run_plan(plan, runs_dir, terminal, backend), "unless passed")
        rows.append(row_of(result))
        code = exit_code(result)
        bad = [f"{verdict.name} {verdict.verdict}" for verdict in result.judgement.checks
               if verdict.verdict == "failed"] if code == 1 else []
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
    low, high = wilson(rate.passed, rate.judged)
    left_out = len(rate.runs) - rate.judged
    console.print(f"{rate.scenario}: {rate.passed} of {rate.judged} passed, 95% interval {low:.0%} to {high:.0%}"
                  + (f"; {left_out} proved nothing" if left_out else ""), highlight=False)
