"""Commands about what runs leave, and about this machine: check, clean, doctor."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from chaos.commands.common import Failure, JsonOption, app, print_json
from chaos.folder import RunFolder
from harness.reaper import NOT_UNDONE


@app.command()
def check(folder: Annotated[Path, typer.Argument(help="The folder of a run, runs/<id>.")], as_json: JsonOption = False,
          ) -> None:
    """Judge a recorded run again: the same folder gives the same verdicts.

    Example: `diloco-chaos check runs/20260101-120000-flagship-1a2b`
    """
    from chaos.report import show as show_report
    from chaos.run import document, exit_code, judged
    try:
        result = judged(RunFolder.open(folder))
        story = document(result)
        if not as_json:
            show_report(result, Console())
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as error:
        raise Failure(f"{folder}: its tape can't be understood: {type(error).__name__} {error}", 2) from error
    if as_json:
        print_json(story)
    raise typer.Exit(exit_code(result))


@app.command()
def clean(
    runs: Annotated[bool, typer.Option("--runs", help="Thin out the folders of runs, too.")] = False,
    keep: Annotated[int, typer.Option(min=0, help="With --runs: how many of the newest stay.")] = 10,
    runs_dir: Annotated[Path, typer.Option(help="With --runs: where they are.")] = Path("runs"),
    as_json: JsonOption = False,
) -> None:
    """Undo what dead runs left behind: whatever their ledgers still hold. Touches nothing that is not ours.

    Example: `diloco-chaos clean --runs --keep 5`
    """
    from chaos.custody import clean as heal_all
    from chaos.folder import thin_out
    did = heal_all()
    if runs:
        did += [f"{path} removed" for path in thin_out(runs_dir, keep)]
    failed = any(line.startswith(NOT_UNDONE) for line in did)
    if as_json:
        print_json({"clean": not failed, "did": did})
    else:
        for line in did or ["nothing was left behind"]:
            typer.echo(line)
    raise typer.Exit(2 if failed else 0)


@app.command()
def doctor(as_json: JsonOption = False) -> None:
    """Tell what this machine can do, and what is missing.

    Example: `diloco-chaos doctor`
    """
    from chaos.doctor import examine
    lines = examine()
    missing = any(line.state == "missing" for line in lines)
    if as_json:
        print_json({"ready": not missing, "found": [line._asdict() for line in lines]})
        raise typer.Exit(2 if missing else 0)
    marks = {"ok": "[green]✓[/]", "missing": "[red]✗[/]", "optional": "[yellow]-[/]"}
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    for line in lines:
        table.add_row(marks[line.state], line.name, "\n".join(filter(None, [line.found, line.advice])))
    Console().print(table)
    raise typer.Exit(2 if missing else 0)
