"""The options that hold new runs against those of before: of `compare`, and of `run`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from diloco_chaos.chaos.commands.common import Failure, understood
from diloco_chaos.chaos.scenario.loading import load
from diloco_chaos.chaos.scenario.plan import Plan, freeze
from diloco_chaos.harness.base.units import share

if TYPE_CHECKING:
    from rich.console import Console

    from diloco_chaos.chaos.report.comparison.measured import WayMeasured
    from diloco_chaos.chaos.report.comparison.model import Comparison

USUAL_SHARE = "20%"
NOW = "now"
"""What new runs are called beside the baseline."""
BaselineOption = Annotated[Path | None, typer.Option(
    "--baseline", metavar="RUNS", help="Hold new runs against these: a folder of runs of the scenario, or compare.json "
    "of an earlier comparison. Exits 1 where a phase of recovery got slower.")]
SlowerByOption = Annotated[str, typer.Option(
    "--slower-by", show_default=USUAL_SHARE, help="With --baseline: how much slower is too slow, beside being more "
    "than the noise.")]


def share_of(slower_by: str, baseline: Path | None) -> float:
    """Return the share that `--slower-by` names.

    Raises:
        Failure: it names none, or there is no baseline that anything can be slower than.
    """
    if slower_by and baseline is None:
        raise Failure("--slower-by: slower than what? Give --baseline, too", 2)
    try:
        return float(share(slower_by or USUAL_SHARE))
    except ValueError as error:
        raise Failure(f"--slower-by: {error}", 2) from error


def beside_baseline(scenario: str, path: Path, place: str, seeds: list[int],
                    settled: Callable[[Plan], Plan]) -> tuple[WayMeasured, tuple[Plan, ...]]:
    """Return the runs of a baseline, and the plans to hold against them: one for each of its seeds, if none are given.

    Args:
        scenario: its name or file, as the user typed it.
        place: where the new runs will be.
        settled: the plan with what the command line overrides.

    Raises:
        BaselineError: it can't be read, or new runs can't be held against it.
        Failure: a run of it can't be understood.
    """
    from diloco_chaos.chaos.report.comparison.baseline import baseline_of, must_be_same
    loaded = load(scenario)[0]
    with understood(path):
        before = baseline_of(path, freeze(loaded, 0), scenario, place, seeds)
    plans = tuple(settled(freeze(loaded, run.seed)) for run in before.runs)
    must_be_same(path, before, plans)
    return before, plans


def save(comparison: Comparison, out: Path | None, runs: Path, console: Console) -> None:
    """Write all forms of a comparison to a folder of its own, and say where.

    Raises:
        NotWrittenError: it can't be made, or there is no room.
    """
    from diloco_chaos.chaos.report.comparison.saved import folder_for, write
    folder = folder_for(out, runs, comparison.ways[0].scenario)
    write(folder, comparison)
    console.print(f"saved   {folder}: compare.html, compare.md for a pull request, compare.json for --baseline",
                  style="dim", markup=False, highlight=False, soft_wrap=True)
