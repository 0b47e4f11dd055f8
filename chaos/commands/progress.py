"""The command that shows what a scenario reads in a trainer's log, before anything is run."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from chaos.commands.common import Failure, JsonOption, app, print_json
from chaos.scenario.loading import load
from harness.core.rounds_told import Lint, Report
from harness.errors import printable
from harness.trainer_api.trainer import TrainerError

_SHOWN = 3
_PROBLEMS_SHOWN = 10
_MOST_BYTES = 1 << 28


@app.command()
def progress(
    file: Annotated[Path, typer.Argument(help="A log of the trainer.")],
    scenario: Annotated[str, typer.Option("--with", help="The scenario whose `progress` reads it.")],
    node: Annotated[str, typer.Option(help="Whose log it is; any node's, if not given.")] = "",
    as_json: JsonOption = False,
) -> None:
    """Show what a scenario of commands would find in a log, and what is wrong with it.

    That is: nothing that matches, rounds that go back or are left out, a clock that is another one.

    Example: `diloco-chaos progress train.log --with mine.yaml`
    """
    loaded = load(scenario)[0]
    lines, written = _log(file)
    try:
        found = loaded.under_test.read_log(loaded.cluster, lines, node, written)
    except TrainerError as error:
        raise Failure(f"{scenario}: {error}", 2) from error
    if as_json:
        print_json({"lines": found.lines, "rounds": [report._asdict() for report in found.reports],
                    "problems": list(found.problems)})
    else:
        _show(file, found)
    raise typer.Exit(2 if found.problems else 0)


def _log(file: Path) -> tuple[list[str], datetime]:
    """Its lines, and when it was last written."""
    try:
        with open(file, "rb") as opened:
            data = opened.read(_MOST_BYTES)
        written = datetime.fromtimestamp(file.stat().st_mtime, UTC)
    except OSError as error:
        raise Failure(f"{file}: can't be read: {error.strerror}", 2) from error
    return data.decode("utf-8", "replace").splitlines(), written


def _show(file: Path, found: Lint) -> None:
    typer.echo(printable(f"{file}: {len(found.reports)} of {found.lines} lines tell a round"))
    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in Report._fields:
        table.add_column(column, justify="right")
    left_out = len(found.reports) - 2 * _SHOWN
    for report in found.reports[:_SHOWN] if left_out > 0 else found.reports:
        table.add_row(*_cells(report))
    if left_out > 0:
        table.add_row("...")
        for report in found.reports[-_SHOWN:]:
            table.add_row(*_cells(report))
    if found.reports:
        Console().print(table)
    for problem in found.problems[:_PROBLEMS_SHOWN]:
        typer.echo(printable(problem), err=True)
    if (more := len(found.problems) - _PROBLEMS_SHOWN) > 0:
        typer.echo(f"and {more} problems more", err=True)


def _cells(report: Report) -> list[str]:
    cells = ["" if value is None else f"{value:g}" for value in report[:-1]]
    return [*cells, "" if report.time is None else f"{datetime.fromtimestamp(report.time, UTC):%H:%M:%S.%f}"[:-3]]
