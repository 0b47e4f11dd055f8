"""Commands that show what runs left to people: report, open, runs, diff."""

from __future__ import annotations

import math
import webbrowser
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from diloco_chaos.chaos.commands.common import (
    Failure,
    JsonOption,
    RunArgument,
    print_json,
    print_report,
    understood,
)
from diloco_chaos.chaos.evidence.run_folder import RUNS, RunFolder, all_runs, named
from diloco_chaos.harness.base.errors import printable
from diloco_chaos.harness.base.units import shortened

_MOST, _WIDEST = 20, 100
_WORDS: dict[int | None, tuple[str, str]] = {0: ("passed", "green"), 1: ("FAILED", "bold red"),
                                             3: ("inconclusive", "yellow"), 130: ("interrupted", "yellow")}


def report(
    folder: RunArgument,
    form: Annotated[str, typer.Option("--format", help="html, md, json (the verdicts), model (all figures), junit, svg "
                                      "or png (the timeline), perfetto, prometheus, otel, or another package's."
                                      )] = "md",
    out: Annotated[Path | None, typer.Option(help="Write it to this file, not to standard output.")] = None,
) -> None:
    """Write the report of a recorded run in another form. Every run has its report.html already.

    Example: `diloco-chaos report runs/20260101-120000-flagship-1a2b --format html --out report.html`
    """
    from diloco_chaos.chaos.report.forms.registry import find
    from diloco_chaos.chaos.runner.run import judged
    write = find(form)
    with understood(folder):
        text = write(judged(RunFolder.open(folder)))
    if out is None:
        print_report(text)
        return
    try:
        out.write_bytes(text.encode() if isinstance(text, str) else text)
    except OSError as error:
        raise Failure(f"{out}: can't be written: {error.strerror}", 2) from error


def open_(
    run: Annotated[str, typer.Argument(metavar="[RUN]", help="As for `report`.")] = "latest",
    show: Annotated[bool, typer.Option("--print", help="Print where it is, and open nothing.")] = False,
) -> None:
    """Open a run's report.html in the browser; without a browser, say where it is. A page that is older than what it
    tells of, or not there, is made first.

    Example: `diloco-chaos open latest`
    """
    from diloco_chaos.chaos.report.forms.page import PAGE
    from diloco_chaos.chaos.report.saved import again, stale
    from diloco_chaos.chaos.runner.run import judged
    folder = RunFolder.open(named(run))
    page = folder.path / PAGE
    if not folder.over:
        raise Failure(f"{folder.path} has no {PAGE}: this run still goes on; it has one when it is over", 2)
    with understood(folder.path):
        if stale(folder):
            again(judged(folder))
    if show or not webbrowser.open(page.as_uri()):
        typer.echo(page)


def runs(
    words: Annotated[str, typer.Argument(help="Only those whose name has this.")] = "",
    runs_dir: Annotated[Path, typer.Option(help="The folder that they are in.")] = RUNS,
    most: Annotated[int, typer.Option("--last", min=1, help="How many of the newest.")] = _MOST,
    as_json: JsonOption = False,
) -> None:
    """List the runs that there are, the newest last: when, what came of it, what did not hold.

    Example: `diloco-chaos runs flagship --last 5`
    """
    from diloco_chaos.chaos.report.past import past
    from diloco_chaos.chaos.report.suite import margin
    listed = [past(RunFolder(path)) for path in [path for path in all_runs(runs_dir) if words in path.name][-most:]]
    if as_json:
        print_json({"runs": [{"run": run.run, "created": run.created, "seed": run.seed, "exit_code": run.exit_code,
                              "why": run.why, "tightest": run.tightest and {
                                  "check": run.tightest[0], "used": _finite(run.tightest[1])}} for run in listed]})
        return
    if not listed:
        typer.echo(f"no runs in {runs_dir}" + (f" have {printable(words)!r} in their name" if words else ""))
        return
    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("run", "seed", "verdict", "what did not hold, or the tightest margin"):
        table.add_column(column, no_wrap=column == "run", overflow="fold")
    for run in listed:
        word, style = _WORDS.get(run.exit_code, ("not judged", "dim"))
        table.add_row(Text(run.run), str(run.seed), Text(word, style),
                      Text(shortened(run.why, _WIDEST) or margin(run.tightest)))
    Console().print(table)


def diff(before: RunArgument, after: RunArgument, as_json: JsonOption = False) -> None:
    """Compare two runs: verdicts that changed, figures, and where their training first went different ways.

    Exit codes: 0 nothing that had passed failed, 1 something did, 2 a folder is wrong.

    Example: `diloco-chaos diff runs/20260101-120000-flagship-1a2b latest`
    """
    from diloco_chaos.chaos.report.difference import difference
    from diloco_chaos.chaos.runner.run import judged
    results = []
    for folder in (before, after):
        with understood(folder):
            results.append(judged(RunFolder.open(folder)))
    with understood(after):
        compared = difference(*results)
    if as_json:
        print_json({"warnings": compared.warnings, "checks": [change._asdict() for change in compared.changes],
                    "figures": compared.figures, "parted": compared.parted})
        raise typer.Exit(compared.broken)
    console = Console()
    for line in compared.warnings:
        console.print(f"warning: {line}", style="yellow", markup=False)
    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("", "what", before.name[:15], after.name[:15], "usual"):
        table.add_column(Text(column), overflow="fold", no_wrap=column == "what")
    for change in compared.changes:
        look = {"broken": "bold red", "fixed": "green"}.get(change.kind, "")
        table.add_row(Text(change.kind, look), Text(change.name), Text(change.before), Text(change.after),
                      Text(change.usual, "dim"))
    for what, left, right in compared.figures:
        table.add_row("", Text(what), left, right)
    console.print(table if table.row_count else "the same verdicts, and the same figures")
    console.print(compared.parted or "every version of every fragment is the same, as far as both made it",
                  markup=False, highlight=False)
    raise typer.Exit(compared.broken)


def _finite(number: float) -> float | None:
    """Return the number for JSON, which has no infinity: None where it is not finite."""
    return number if math.isfinite(number) else None
