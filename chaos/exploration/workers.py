"""Who runs an exploration's schedules: this process, several processes, or a Ray cluster."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from typing import Any

from chaos.exploration.corpus import Tried
from chaos.exploration.explore import Job, attempt
from harness.cleanup.parent_death import die_with_parent

_MOST_DEATHS = 20
_CHUNK = 4  # schedules that a Ray task runs


class WorkersError(Exception):
    """They can't be had; the message says what to type."""


class InProcessWorkers:
    """This process."""

    def run(self, jobs: Sequence[Job]) -> Iterator[Tried]:
        """One after the other."""
        yield from map(attempt, jobs)


class Processes:
    """So many processes of this machine. One that is killed loses nothing: what it had not given is run again."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._pool = self._new()
        self._deaths = 0

    def run(self, jobs: Sequence[Job]) -> Iterator[Tried]:
        """As they come.

        Raises:
            WorkersError: workers die again and again.
        """
        left = {job.number: job for job in jobs}
        while left:
            futures = [self._pool.submit(attempt, job) for job in left.values()]
            try:
                for future in as_completed(futures):
                    tried = future.result()
                    del left[tried.number]
                    yield tried
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


class Ray:
    """A Ray cluster; one of this machine where no address is given. Ray runs again what a dead worker or node had not
    given back."""

    def __init__(self, address: str = "", jobs: int = 0) -> None:
        """`jobs`: processors to use where a local one is started, 0 for all.

        Raises:
            WorkersError: Ray is not installed, or there is no cluster at that address.
        """
        try:
            import ray
        except ImportError as error:
            raise WorkersError("Ray is not installed: pip install 'diloco-chaos[ray]'") from error
        self._ray: Any = ray
        try:
            if address:
                ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
            else:
                ray.init(num_cpus=jobs or None, include_dashboard=False, log_to_driver=False,
                         logging_level=logging.ERROR)
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise WorkersError(f"no Ray cluster at {address or 'this machine'}: {error}") from error
        self._task = ray.remote(max_retries=-1, num_cpus=1)(_attempts)

    def run(self, jobs: Sequence[Job]) -> Iterator[Tried]:
        """As they come."""
        texts = [job.model_dump_json() for job in jobs]
        waiting = [self._task.remote(texts[at:at + _CHUNK]) for at in range(0, len(texts), _CHUNK)]
        while waiting:
            done, waiting = self._ray.wait(waiting)
            for results in self._ray.get(done):
                yield from map(Tried.model_validate_json, results)

    def close(self) -> None:
        """Leave the cluster; one that was started here ends."""
        self._ray.shutdown()


def _attempts(texts: list[str]) -> list[str]:
    """JSON in, JSON out: nothing else has to be understood at the other end."""
    return [attempt(Job.model_validate_json(text)).model_dump_json() for text in texts]
