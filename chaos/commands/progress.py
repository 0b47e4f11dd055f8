"""The command that shows what a scenario reads in a trainer's logs, before anything is run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from diloco_chaos.chaos.commands.common import Failure, JsonOption, print_json
from diloco_chaos.chaos.scenario.loading import load
from diloco_chaos.chaos.scenario.model import Scenario
from diloco_chaos.harness.base.errors import printable
from diloco_chaos.harness.trainers.api.trainer import TrainerError
from diloco_chaos.harness.trainers.core.log_lines import lines_of
from diloco_chaos.harness.trainers.core.round_reports import Lint, RoundReport

_SHOWN = 3
_PROBLEMS_SHOWN = 10
_MOST_BYTES = 1 << 28
_OF_A_RUN = re.compile(r"(.+)\.\d+\.log")


def progress(
    logs: Annotated[list[Path], typer.Argument(help="Logs of the trainer: a run has its own in logs/.")],
    scenario: Annotated[str, typer.Option("--with", help="The scenario whose `progress` reads it.")],
    node: Annotated[str, typer.Option(help="Whose they are; if not given, that of a run is of the node it is called "
                                           "after, and any other is anybody's.")] = "",
    as_json: JsonOption = False,
) -> None:
    """Show what a scenario of commands would find in logs, and what is wrong with them.

    That is: nothing that matches, fields that are no numbers, rounds that go back or are left out, a clock that is
    another one. Rounds that several ranks tell, or every tenth, are no problem.

    Example: `diloco-chaos progress train.log --with mine.yaml`
    """
    loaded = load(scenario)[0]
    lints: list[tuple[Path, Lint]] = []
    unread: list[str] = []
    for file in logs:
        whose = node or _named_after(file, loaded)
        lines, written = _log(file)
        try:
            lints.append((file, loaded.trainer.read_log(lines, whose, written)))
        except TrainerError as error:
            if node or not whose:
                raise Failure(f"{scenario}: {error}", 2) from error
            unread.append(f"{file}: {error}")
    if not lints:
        raise Failure("\n".join(unread), 2)
    if as_json:
        print_json({"logs": [{"file": str(file), "lines": lint.lines, "problems": list(lint.problems),
                              "notes": list(lint.notes),
                              "rounds": [report._asdict() for report in lint.reports]} for file, lint in lints],
                    "unread": unread})
    else:
        for file, lint in lints:
            _show(file, lint, f"{file.name}: " if len(logs) > 1 else "")
        for line in unread:
            typer.echo(printable(line))
    raise typer.Exit(2 if any(lint.problems for _, lint in lints) else 0)


def _named_after(file: Path, scenario: Scenario) -> str:
    """The node that a run calls its log after: `logs/NODE.INCARNATION.log`; empty: it is none of these."""
    name = _OF_A_RUN.fullmatch(file.name)
    return name[1] if name and name[1] in scenario.cluster.all_nodes else ""


def _log(file: Path) -> tuple[list[str], datetime]:
    """Its lines, and when it was last written."""
    try:
        if file.is_dir():
            raise Failure(f"{file}: a folder: name the logs in it", 2)
        with open(file, "rb") as opened:
            data = opened.read(_MOST_BYTES)
        written = datetime.fromtimestamp(file.stat().st_mtime, UTC)
    except (OSError, ValueError, OverflowError) as error:
        raise Failure(f"{file}: can't be read: {getattr(error, 'strerror', None) or error}", 2) from error
    return lines_of(data), written


def _show(file: Path, lint: Lint, before: str) -> None:
    """Print what was read from a log, and its problems. `before`: the prefix of each problem's line."""
    typer.echo(printable(f"{file}: {len(lint.reports)} of {lint.lines} lines tell a round"))
    table = Table(box=None, padding=(0, 2, 0, 0))
    columns = [name for name in RoundReport._fields
               if name not in ("epoch", "rank") or any(getattr(report, name) is not None for report in lint.reports)]
    for column in columns:
        table.add_column(column, justify="right")
    left_out = len(lint.reports) - 2 * _SHOWN
    for report in lint.reports[:_SHOWN] if left_out > 0 else lint.reports:
        table.add_row(*_cells(report, columns))
    if left_out > 0:
        table.add_row("...")
        for report in lint.reports[-_SHOWN:]:
            table.add_row(*_cells(report, columns))
    if lint.reports:
        Console().print(table)
    for note in lint.notes:
        typer.echo(printable(f"{before}{note}"))
    for problem in lint.problems[:_PROBLEMS_SHOWN]:
        typer.echo(printable(f"{before}{problem}"), err=True)
    if (more := len(lint.problems) - _PROBLEMS_SHOWN) > 0:
        typer.echo(f"{before}and {more} problems more", err=True)


def _cells(report: RoundReport, columns: Sequence[str]) -> list[str]:
    return [_cell(name, getattr(report, name)) for name in columns]


def _cell(name: str, value: Any) -> str:
    if value is None:
        return ""
    if name == "time":
        return f"{datetime.fromtimestamp(value, UTC):%H:%M:%S.%f}"[:-3]
    return str(value) if isinstance(value, int) else f"{value:g}" if isinstance(value, float) else str(value)
