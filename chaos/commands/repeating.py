"""The part of `run` that makes several runs: the pass rate, and what got slower since a baseline."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from diloco_chaos.chaos.commands.baselines import NOW, save
from diloco_chaos.chaos.commands.common import print_json
from diloco_chaos.chaos.scenario.plan import Plan

if TYPE_CHECKING:
    from diloco_chaos.chaos.report.comparison.measured import RunMeasured, WayMeasured
    from diloco_chaos.chaos.runner.backends import Backend
    from diloco_chaos.chaos.runner.run import Result


def repeat_runs(plans: Sequence[Plan], runs: Path, console: Console, backend: Backend, as_json: bool) -> int:
    """Run all plans, print how often they passed, and return the exit code."""
    from diloco_chaos.chaos.report.repeat import repeated, show
    rate = repeated(plans, runs, console, backend)
    print_json(rate.document()) if as_json else show(rate, console)
    return rate.exit_code


def repeat_beside(before: WayMeasured, share: float, plans: Sequence[Plan], runs: Path, console: Console,
                  backend: Backend, as_json: bool) -> int:
    """Do the same, and hold the runs against those of a baseline; a phase that got slower by more than this share and
    by more than the noise is as bad as a run that failed."""
    from diloco_chaos.chaos.report.comparison.measured import measured, way_of
    from diloco_chaos.chaos.report.comparison.perform import held_against
    from diloco_chaos.chaos.report.comparison.saved import document
    from diloco_chaos.chaos.report.comparison.terminal import show as show_comparison
    from diloco_chaos.chaos.report.repeat import repeated, show, worst
    told: list[RunMeasured] = []

    def hear(result: Result) -> None:
        if result.outcome.kind != "interrupted":
            told.append(measured(result))
    rate = repeated(plans, runs, console, backend, hear)
    comparison = held_against(before, [way_of(NOW, plans[0], told)], share, backend.name, len(plans) - len(told))
    code = worst((rate.exit_code, comparison.exit_code))
    if as_json:
        print_json(rate.document() | {"exit_code": code, "comparison": document(comparison)})
    else:
        show(rate, console)
        show_comparison(comparison, console)
    save(comparison, None, runs, console)
    return code
