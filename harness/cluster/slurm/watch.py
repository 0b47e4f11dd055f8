"""Follows what becomes of a run's jobs."""

from __future__ import annotations

import threading
from contextlib import suppress

from harness.cluster.slurm.queue import Job, Slurm, SlurmError

_EVERY_S = 1.0


class Watch(threading.Thread):
    """Looks once a second; while Slurm's controller is away, what was known stands."""

    def __init__(self, slurm: Slurm, run: str) -> None:
        """`run`: its label."""
        super().__init__(daemon=True, name="jobs-watch")
        self.jobs: dict[int, Job] = {}
        """By their numbers, as they were seen last."""
        self.failure: BaseException | None = None
        """Why it ended; None: it goes on, or was closed."""
        self._slurm, self._run = slurm, run
        self._over = threading.Event()
        self.start()

    def run(self) -> None:
        """Until `close`."""
        try:
            while not self._over.wait(_EVERY_S):
                with suppress(SlurmError):
                    self.jobs.update(self._slurm.jobs(self._run))
        except BaseException as error:
            self.failure = error

    def close(self) -> None:
        """Look no more."""
        self._over.set()
        with suppress(RuntimeError):
            self.join(_EVERY_S)
