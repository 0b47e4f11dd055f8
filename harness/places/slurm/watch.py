"""Follows what becomes of a run's jobs."""

from __future__ import annotations

from diloco_chaos.harness.places.remote.watching import Watching
from diloco_chaos.harness.places.slurm.queue import Job, SlurmError, SlurmQueue

_EVERY_S = 1.0


class QueueWatch(Watching):
    """Looks once a second; while Slurm's controller is away, what was known stands."""

    def __init__(self, slurm: SlurmQueue, run: str) -> None:
        """`run`: its label."""
        super().__init__("jobs-watch", _EVERY_S, SlurmError)
        self.jobs: dict[int, Job] = {}
        """By their numbers, as they were seen last."""
        self._slurm, self._run = slurm, run
        self.start()

    def look(self) -> None:
        """Look at all of the run's jobs."""
        self.jobs.update(self._slurm.jobs(self._run))
