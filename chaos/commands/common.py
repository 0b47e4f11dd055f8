"""What all commands share: common options, the way to end a command, and JSON on standard output."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from diloco_chaos.harness.base.errors import NOT_UNDERSTOOD, UserError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

    from diloco_chaos.harness.base.workers import Job, Result, Task, Workers

def _run_folder(text: str) -> Path:
    from diloco_chaos.chaos.evidence.run_folder import named
    return named(text)


RunArgument = Annotated[Path, typer.Argument(
    parser=_run_folder, metavar="RUN", help="The folder of a run, as in runs/ID; how the name of one in runs/ begins; "
                                            "or latest.")]


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


class Failure(UserError):  # noqa: N818 - an end of the program, not an error of it
    """Ends the command with a message and an exit code."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.exit_code = code


def one_of(option: str, given: str, known: list[str]) -> None:
    """Raises where an option has none of its values."""
    if given not in known:
        from diloco_chaos.harness.base.errors import nearest
        raise Failure(f"{option} {given}: {' or '.join(known)}{nearest(given, known)}", 2)


def workers_of(task: Task[Job, Result], jobs: int, workers: str, address: str) -> Workers[Job, Result]:
    """Return the workers that `--jobs`, `--workers` and `--address` ask for.

    Raises:
        Failure: there are none such.
    """
    from diloco_chaos.harness.base.workers import WorkersError, workers_for
    one_of("--workers", workers, ["local", "ray"])
    if address and workers != "ray":
        raise Failure("--address: of a Ray cluster; say --workers ray, too", 2)
    try:
        return workers_for(task, jobs, workers, address)
    except WorkersError as error:
        raise Failure(f"--workers ray: {error}", 2) from error


def search_bar(console: Console) -> Progress:
    """The bar of a search; its tasks have `words`."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    return Progress(TextColumn("exploring"), BarColumn(bar_width=None), TextColumn("{task.fields[words]}"),
                    TimeElapsedColumn(), TimeRemainingColumn(), console=console, transient=True)


@contextmanager
def at_work(task: Task[Job, Result], where: tuple[int, str, str]) -> Iterator[Workers[Job, Result]]:
    """Workers, for as long as they are needed. `where`: `--jobs` (0: one for each processor), `--workers` and
    `--address`.

    Raises:
        Failure: there are none such, or they die again and again.
    """
    from diloco_chaos.harness.base.workers import WorkersError
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
