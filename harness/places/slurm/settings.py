"""Where in which Slurm runs are performed, and with what: a file of the user's."""

from __future__ import annotations

import sys
from typing import Annotated, ClassVar

from pydantic import Field

from diloco_chaos.harness.places.remote.settings import PlaceSettings

_WORD = r"^[A-Za-z0-9_.,:@%+=-]*$"


class SlurmSettings(PlaceSettings):
    """See the module. What is left out is as your Slurm has it."""

    variable: ClassVar[str] = "DILOCO_CHAOS_SLURM"

    partition: Annotated[str, Field(pattern=_WORD)] = ""
    account: Annotated[str, Field(pattern=_WORD)] = ""
    options: tuple[Annotated[str, Field(pattern=r"^--[a-z]")], ...] = ()
    """More of `sbatch`, as it has them: `--qos=low`, `--constraint=cpu`."""
    cpus: Annotated[int, Field(ge=1, le=1024)] = 1
    """Processors of a node's job."""
    memory: Annotated[str, Field(pattern=r"^\d+[KMGT]?$")] = "1G"
    """Memory of a node's job, as Slurm writes it."""
    python: Annotated[str, Field(min_length=1)] = sys.executable
    """The interpreter on the machines, which has this version of the trainer; usually this one, on a shared disk."""
    folder: Annotated[str, Field(pattern=r"^/[^'\"\\$`\n]*$")] = "/tmp"  # noqa: S108 - what is made there is nobody else's
    """On each machine, for what its nodes write; a disk of its own is best."""
    address: str = ""
    """Of the harness' machine, where nodes find the links; empty: the one that leads to the first node's machine."""
    start_within: Annotated[float, Field(ge=5, le=86400)] = 600.0
    """Seconds that a job may wait in the queue, and once more after it was requeued."""
