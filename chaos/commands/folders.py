"""Commands about what a run left, and about this machine: check, replay, tokens, clean, doctor."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from diloco_chaos.chaos.commands.common import (
    Failure,
    JsonOption,
    RunArgument,
    VerboseOption,
    print_json,
    print_report,
    understood,
)
from diloco_chaos.chaos.commands.places import must_have, on_option, takes_place_options
from diloco_chaos.chaos.evidence.run_folder import RunFolder
from diloco_chaos.harness.base.errors import first
from diloco_chaos.harness.base.extras import MissingExtraError
from diloco_chaos.harness.places.base import ClusterError
from diloco_chaos.harness.places.registry import DEFAULT
from diloco_chaos.harness.record.reaper import HealedRun

if TYPE_CHECKING:
    from diloco_chaos.harness.trainers.api.trainer import Replay

def check(folder: RunArgument, as_json: JsonOption = False,
          report: Annotated[str, typer.Option(help="Print the report of this name instead: json, or another "
                                              "package's.")] = "",
          verbose: VerboseOption = False) -> None:
    """Judge a recorded run again: the same folder gives the same verdicts.

    Example: `diloco-chaos check runs/20260101-120000-flagship-1a2b`
    """
    from diloco_chaos.chaos.report.forms.registry import find
    from diloco_chaos.chaos.report.saved import again
    from diloco_chaos.chaos.report.terminal import show as show_report
    from diloco_chaos.chaos.runner.run import exit_code, judged
    write = find("json" if as_json else report) if as_json or report else None
    with understood(folder):
        run = RunFolder.open(folder)
        if not run.over:
            raise Failure(f"{folder}: this run still goes on; it is judged when it is over", 2)
        result = judged(run)
        if write is not None:
            print_report(write(result))
        else:
            show_report(result, Console(), verbose)
        again(result)
    raise typer.Exit(exit_code(result))


def replay(folder: RunArgument, as_json: JsonOption = False) -> None:
    """Do a recorded run again from its tape, and compare every version of every fragment, bit for bit.

    Exit codes: 0 all the same, 1 different (the first difference is printed), 2 the folder is wrong, 3 the recording
    (the tape) is incomplete.

    Example: `diloco-chaos replay runs/20260101-120000-flagship-1a2b`
    """
    from diloco_chaos.chaos.evidence.run_folder import changed
    from diloco_chaos.chaos.report.live import counting
    from diloco_chaos.chaos.runner.run import recorded
    from diloco_chaos.harness.record.storage.checkpoint import CheckpointError
    from diloco_chaos.harness.trainers.api.trainer import TrainerError
    console = Console(stderr=as_json)
    with understood(folder):
        run = RunFolder.open(folder)
        try:
            settings = run.settings(run.plan())
            initial, history = settings.initial_values(), recorded(run)
            if why := settings.trainer.lacking():
                raise MissingExtraError(why)
        except (ValueError, CheckpointError, OSError) as error:
            raise Failure(f"{folder}: what it began from is not there any more: {first(error)}; run it again: "
                          f"{run.repeat}", 2) from error
        for why in changed(run.manifest()):
            console.print(f"warning: {why}", style="yellow", markup=False)
        with counting(console, len(history.merges)) as bar:
            try:
                result = settings.trainer.replay(history, settings.data, initial,
                                                 lambda versions: bar.update(bar.task_ids[0], completed=versions))
            except OSError as error:
                raise Failure(f"{folder}: what it began from is not there any more: {first(error)}; run it again: "
                              f"{run.repeat}", 2) from error
            except TrainerError as error:
                raise Failure(f"{folder}: {error}", 2) from error
    if history.log_gaps and not result.difference:
        result = replace(result, missing=result.missing or f"the event log is incomplete: {history.log_gaps[0]}")
    if as_json:
        print_json({"run": run.path.name, "versions": result.versions, "steps": result.steps,
                    "difference": result.difference and {"t": result.difference.t, "words": result.difference.words},
                    "missing": result.missing})
    else:
        console.print(_replayed(result), highlight=False, soft_wrap=True, markup=False)
    raise typer.Exit(1 if result.difference else 3 if result.missing or not result.versions else 0)


def _replayed(result: Replay) -> str:
    if not result.versions and not result.difference:
        return result.missing or "nothing was merged in this run"
    far = f"{result.versions:,} versions from {result.steps:,} inner steps: "
    if result.difference:
        return f"{far}the first difference is at {result.difference.t:.2f} s\n{result.difference.words}"
    return far + (f"the same, bit for bit, as far as it goes\n{result.missing}" if result.missing
                  else "all the same, bit for bit")


def tokens(
    folder: RunArgument,
    fragment: Annotated[int | None, typer.Option(min=0, help="Only this fragment, by its number.")] = None,
    as_json: JsonOption = False,
) -> None:
    """List the batches (tokens) that were handed out and never merged: for each model fragment, by learner, and why.

    Example: `diloco-chaos tokens runs/20260101-120000-flagship-1a2b --fragment 0`
    """
    from diloco_chaos.chaos.evidence.unmerged import unmerged
    from diloco_chaos.chaos.runner.run import recorded
    with understood(folder):
        run = RunFolder.open(folder)
        history = recorded(run)
        lost, fragments = unmerged(history), len(history.plan.cluster.fragment_table())
    if fragment is not None and fragment >= fragments:
        raise Failure(f"there is no fragment {fragment}: this run has 0 to {fragments - 1}", 2)
    lost = [entry for entry in lost if fragment in (None, entry.fragment)]
    if as_json:
        print_json({"run": run.path.name, "processed": history.accounting.processed,
                    "by_fate": history.accounting.by_fate,
                    "unmerged": [asdict(entry) | {"batches": entry.batches} for entry in lost]})
        return
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
    for name in ("fragment", "learner", "why", "batches"):
        table.add_column(name, no_wrap=True, justify="right" if name in ("fragment", "batches") else "left")
    table.add_column("which of its shard", ratio=1)
    for entry in lost:
        which = ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in entry.ranges)
        table.add_row(str(entry.fragment), f"{entry.learner}.{entry.incarnation}", entry.why, f"{entry.batches:,}",
                      which)
    Console().print(table if lost else "everything that was trained on was merged" if history.accounting.processed
                    else "nothing was trained on in this run")


def clean(
    runs: Annotated[bool, typer.Option("--runs", help="Also delete old folders of runs, all but the newest.")] = False,
    keep: Annotated[int, typer.Option(min=0, help="With --runs: how many of the newest folders to keep.")] = 10,
    runs_dir: Annotated[Path, typer.Option(help="With --runs: the folder that they are in.")] = Path("runs"),
    as_json: JsonOption = False,
) -> None:
    """Undo what runs that died left behind, by their undo logs. Touches nothing that diloco-chaos did not make.

    Example: `diloco-chaos clean --runs --keep 5`
    """
    from diloco_chaos.chaos.evidence.run_folder import thin_out
    from diloco_chaos.chaos.runner.cleanup import clean as heal_all
    outcomes = heal_all()
    if runs:
        outcomes += [HealedRun(f"{path} removed") for path in thin_out(runs_dir, keep)]
    failed = not all(healed.undone for healed in outcomes)
    if as_json:
        print_json({"clean": not failed, "did": list(map(str, outcomes))})
    else:
        for healed in outcomes or [HealedRun("nothing was left behind")]:
            typer.echo(str(healed))
    raise typer.Exit(2 if failed else 0)


@takes_place_options
def doctor(on: Annotated[str, on_option()] = DEFAULT, given: Any = None, as_json: JsonOption = False) -> None:
    """Tell what this machine or a cluster can do, and what is missing.

    Example: `diloco-chaos doctor`
    """
    from diloco_chaos.chaos.doctor import examine
    must_have(on, given)
    try:
        lines = examine(on, given)
    except ClusterError as error:
        raise Failure(f"--on {on}: {error}", 2) from error
    missing = any(line.state == "missing" for line in lines)
    if as_json:
        print_json({"ready": not missing, "found": [line._asdict() for line in lines]})
        raise typer.Exit(2 if missing else 0)
    marks = {"ok": "[green]✓[/]", "missing": "[red]✗[/]", "optional": "[yellow]-[/]"}
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    for line in lines:
        table.add_row(marks[line.state], Text(line.name), Text("\n".join(filter(None, [line.found, line.advice]))))
    Console().print(table)
    raise typer.Exit(2 if missing else 0)
