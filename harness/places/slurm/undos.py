"""What a run leaves in the queue of a Slurm, and how it is cancelled once its harness is dead."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from diloco_chaos.harness.record.undos import Undo

_GONE_S = 20.0


class SlurmJobs(Undo):
    """Cancel every job of Slurm's that carries the run's name, and nothing else."""

    entry: Literal["slurm_jobs"] = "slurm_jobs"
    config: str
    """The file that SLURM_CONF named; empty: none."""
    run: str = Field(pattern=r"^[0-9a-f]{12}$")

    def describe(self) -> str:
        """Say for people what was cancelled."""
        return f"jobs of {self.run} cancelled"

    def heal(self, token: str) -> bool:
        """Cancel the jobs, and wait until they are over."""
        from diloco_chaos.harness.places.slurm.queue import SlurmError, SlurmQueue, wait_over
        try:
            return wait_over(SlurmQueue(self.config), self.run, _GONE_S)
        except SlurmError as error:
            raise OSError(str(error)) from error
