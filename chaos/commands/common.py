"""What all commands share: the application, the way to end one, and JSON on standard output."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from diloco_chaos.chaos.evidence.run_folder import named
from diloco_chaos.chaos.scenario.problems import nearest
from diloco_chaos.harness.errors import NOT_UNDERSTOOD

if TYPE_CHECKING:
    from diloco_chaos.harness.workers import Job, Result, Task, Workers

_HELP = """Breaks a Decoupled DiLoCo training run on purpose, and proves from recorded events whether it healed.

Exit codes: 0 all checks passed, 1 a check failed, 2 the scenario, the folder or the command is wrong, 3 inconclusive,
130 interrupted."""

app = typer.Typer(no_args_is_help=True, rich_markup_mode="markdown", pretty_exceptions_enable=False,
                  context_settings={"help_option_names": ["-h", "--help"]})


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"diloco-chaos {version('diloco-chaos')}")
        raise typer.Exit


@app.callback(help=_HELP)
def options(_: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True,
                                            help="Print the version, and end.")] = False) -> None:
    """What can be said before any command."""


RunArgument = Annotated[Path, typer.Argument(
    parser=named, metavar="RUN", help="The folder of a run, as in runs/ID; how the name of one in runs/ begins; or "
                                      "latest.")]


JsonOption = Annotated[bool, typer.Option(
    "--json", help="One JSON object on standard output, the rest on standard error.")]


VerboseOption = Annotated[bool, typer.Option(
    "--verbose", "-v", help="Also the figures of every check, the loss, tokens, the wire, events and logs.")]


@contextmanager
def understood(folder: Path) -> Iterator[None]:
    """Whatever somebody has made of a run's folder ends a command with a sentence, and not as if a check had failed."""
    try:
        yield
    except OSError as error:
        if not isinstance(error.filename, str) or not Path(error.filename).is_relative_to(folder.resolve()):
            raise
        raise Failure(f"{error.filename}: {error.strerror}", 2) from error
    except NOT_UNDERSTOOD as error:
        raise Failure(f"{folder}: its tape can't be understood: {type(error).__name__} {error}", 2) from error


class Failure(Exception):  # noqa: N818 - an end of the program, not an error of it
    """Ends the command with a message and an exit code."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


def one_of(option: str, given: str, known: list[str]) -> None:
    """Raises where an option has none of its values."""
    if given not in known:
        raise Failure(f"{option} {given}: {' or '.join(known)}{nearest(given, known)}", 2)


def workers_of(task: Task[Job, Result], jobs: int, workers: str, address: str) -> Workers[Job, Result]:
    """Those that `--jobs`, `--workers` and `--address` ask for.

    Raises:
        Failure: there are none such.
    """
    from diloco_chaos.harness.workers import WorkersError, workers_for
    one_of("--workers", workers, ["local", "ray"])
    if address and workers != "ray":
        raise Failure("--address: of a Ray cluster; say --workers ray, too", 2)
    try:
        return workers_for(task, jobs, workers, address)
    except WorkersError as error:
        raise Failure(f"--workers ray: {error}", 2) from error


@contextmanager
def at_work(task: Task[Job, Result], where: tuple[int, str, str]) -> Iterator[Workers[Job, Result]]:
    """Workers, for as long as they are needed. `where`: `--jobs` (0: one for each processor), `--workers` and
    `--address`.

    Raises:
        Failure: there are none such, or they die again and again.
    """
    from diloco_chaos.harness.workers import WorkersError
    jobs, place, address = where
    workers = workers_of(task, jobs or len(os.sched_getaffinity(0)), place, address)
    try:
        yield workers
    except WorkersError as error:
        raise Failure(str(error), 2) from error
    finally:
        workers.close()


def print_report(content: str | bytes) -> None:
    """A report on standard output."""
    sys.stdout.buffer.write(content.encode() if isinstance(content, str) else content)
    sys.stdout.buffer.flush()


def print_json(content: Any) -> None:
    """One object on standard output."""
    sys.stdout.write(json.dumps(content, indent=2) + "\n")
