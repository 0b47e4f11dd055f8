"""Who does many independent jobs: this process, several processes, or a Ray cluster."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any, Generic, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict

from diloco_chaos.harness.base.errors import UserError
from diloco_chaos.harness.base.extras import lacking
from diloco_chaos.harness.base.parent_death import die_with_parent

_MOST_DEATHS = 20
_CHUNK = 4  # jobs that a Ray task does


class WorkersError(UserError):
    """They can't be had; the message says what to type."""


class Numbered(BaseModel):
    """A job, or its result: both bear its number."""

    model_config = ConfigDict(frozen=True)

    number: int


Job = TypeVar("Job", bound=Numbered)
Result = TypeVar("Result", bound=Numbered)
_Given = TypeVar("_Given", bound=Numbered, contravariant=True)
_Got = TypeVar("_Got", bound=Numbered, covariant=True)


@dataclass(frozen=True)
class Task(Generic[Job, Result]):
    """The work that is done with every job."""

    act: Callable[[Job], Result]
    """Never raises."""
    job: type[Job]
    result: type[Result]


class Workers(Protocol[_Given, _Got]):
    """The workers that do the jobs."""

    def run(self, jobs: Sequence[_Given]) -> Iterator[_Got]:
        """The results, in any order. A worker that dies loses none."""
        ...

    def close(self) -> None:
        """Nothing more is to be done."""
        ...


class InProcess(Generic[Job, Result]):
    """This process."""

    def __init__(self, task: Task[Job, Result]) -> None:
        self._task = task

    def run(self, jobs: Sequence[Job]) -> Iterator[Result]:
        """One after the other."""
        yield from map(self._task.act, jobs)

    def close(self) -> None:
        """There is nothing to end."""


class WorkerProcesses(Generic[Job, Result]):
    """So many processes of this machine. One that is killed loses nothing: what it had not given is done again."""

    def __init__(self, task: Task[Job, Result], count: int) -> None:
        self._task, self._count = task, count
        self._pool = self._new()
        self._deaths = 0

    def run(self, jobs: Sequence[Job]) -> Iterator[Result]:
        """Yield the results as they come.

        Raises:
            WorkersError: workers die again and again.
        """
        left = {job.number: job for job in jobs}
        while left:
            futures = [self._pool.submit(self._task.act, job) for job in left.values()]
            try:
                for future in as_completed(futures):
                    result = future.result()
                    del left[result.number]
                    yield result
            except BrokenProcessPool as error:
                self._deaths += 1
                if self._deaths > _MOST_DEATHS:
                    raise WorkersError("workers die again and again: is there too little memory for so many? try "
                                       "--jobs 1") from error
                self._pool = self._new()

    def close(self) -> None:
        """End them."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _new(self) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(self._count, get_context("fork"), initializer=die_with_parent,
                                   initargs=(os.getpid(),))


class Ray(Generic[Job, Result]):
    """A Ray cluster; one of this machine where no address is given. Ray does again what a dead worker or node had not
    given back."""

    def __init__(self, task: Task[Job, Result], address: str = "", jobs: int = 0) -> None:
        """`jobs`: processors to use where a local one is started, 0 for all.

        Raises:
            WorkersError: Ray is not installed, or there is no cluster at that address.
        """
        if why := lacking("ray", "ray", "a Ray cluster"):
            raise WorkersError(why)
        import ray
        self._ray: Any = ray
        try:
            if address:
                ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
            else:
                ray.init(num_cpus=jobs or None, include_dashboard=False, log_to_driver=False,
                         logging_level=logging.ERROR)
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise WorkersError(f"no Ray cluster at {address or 'this machine'}: {error}") from error
        self._task = task
        self._remote = ray.remote(max_retries=-1, num_cpus=1)(_done)

    def run(self, jobs: Sequence[Job]) -> Iterator[Result]:
        """Yield the results as they come."""
        texts = [job.model_dump_json() for job in jobs]
        waiting = [self._remote.remote(self._task, texts[at:at + _CHUNK]) for at in range(0, len(texts), _CHUNK)]
        while waiting:
            done, waiting = self._ray.wait(waiting)
            for results in self._ray.get(done):
                yield from map(self._task.result.model_validate_json, results)

    def close(self) -> None:
        """Leave the cluster; one that was started here ends."""
        self._ray.shutdown()


def workers_for(task: Task[Job, Result], jobs: int, where: str = "local", address: str = "") -> Workers[Job, Result]:
    """Return the workers that a command's options ask for. `where`: local, or ray.

    Raises:
        WorkersError: they can't be had.
    """
    if where == "ray":
        return Ray(task, address, jobs)
    return WorkerProcesses(task, jobs) if jobs > 1 else InProcess(task)


def _done(task: Task[Any, Any], texts: list[str]) -> list[str]:
    """JSON in, JSON out: nothing else has to be understood at the other end but where the task's function is found."""
    return [task.act(task.job.model_validate_json(text)).model_dump_json() for text in texts]
