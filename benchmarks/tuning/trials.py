"""Trainings that nobody has to do twice: each is a line of a file, and a search that was interrupted goes on there."""

from __future__ import annotations

import json
import multiprocessing
import sys
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

Setting = dict[str, Any]
Job = TypeVar("Job", bound=Hashable)
Result = TypeVar("Result")


def key_of(setting: Setting) -> str:
    """A setting's name, from which it can be had again."""
    return json.dumps(setting, sort_keys=True)


def rows(path: Path) -> list[dict[str, Any]]:
    """What a file holds, none where there is no file."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@contextmanager
def kept(path: Path, known: dict[Job, Result], run: Callable[[Job], Result],
         row: Callable[[Job, Result], dict[str, Any]], loss: Callable[[Result], float],
         processes: int) -> Iterator[Callable[[Sequence[Job]], list[Result]]]:
    """What jobs come to, in their order: what is `known`, and the rest by `run`, in so many processes at a time.

    Each result is in `known`, its row in the file, and its loss on standard error, as soon as it is there.
    """
    with multiprocessing.get_context("spawn").Pool(processes) as pool, open(path, "a") as file:
        def results(jobs: Sequence[Job]) -> list[Result]:
            missing = [job for job in dict.fromkeys(jobs) if job not in known]
            for job, result in pool.imap_unordered(partial(_named, run), missing):
                known[job] = result
                file.write(json.dumps(row(job, result)) + "\n")
                file.flush()
                print(f"  {loss(result):.4f}  {job}", file=sys.stderr, flush=True)
            return [known[job] for job in jobs]
        yield results


def _named(run: Callable[[Job], Result], job: Job) -> tuple[Job, Result]:
    return job, run(job)
