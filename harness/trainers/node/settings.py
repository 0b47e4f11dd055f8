"""What all nodes of a run share: written to the run's folder before they start."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SerializeAsAny, ValidationInfo

from diloco_chaos.harness.base.tensors import Tensors
from diloco_chaos.harness.record.storage import checkpoint
from diloco_chaos.harness.trainers.api.settings import TrainerSettings
from diloco_chaos.harness.trainers.api.trainer import Trainer, TrainerError, Workload, at
from diloco_chaos.harness.trainers.storage.workings import WORKINGS, Amount, Workings

SETTINGS = "cluster.json"


def _of_the_trainer(given: Any, info: ValidationInfo) -> Any:
    try:
        return at(info.data.get("path", "")).settings_type.model_validate(given)
    except TrainerError as error:
        raise ValueError(str(error)) from error


class NodeSettings(BaseModel):
    """See the module."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    path: str = Field(alias="trainer")
    """`module:class`: not a name, because where a node runs no package need be installed."""
    cluster: Annotated[SerializeAsAny[TrainerSettings], BeforeValidator(_of_the_trainer)]
    """The trainer's settings."""
    data: Path | None
    """The file that is trained on; None: there is none."""
    initial: Path | None = None
    """Checkpoint that the run begins from; None: fresh values from the seed."""
    checkpoint: int = 0
    """Global checkpoint that the run goes on from; 0: it begins."""
    elapsed: float = 0.0
    """Seconds that it has lasted by then."""
    evidence: Amount = "off"
    """How much of what nodes compute with is kept."""

    @property
    def trainer(self) -> Trainer:
        """Bound to these settings."""
        return at(self.path)(self.cluster)

    def initial_values(self) -> Tensors:
        """The run's start: weights, and the inner optimizer's moments where it goes on from a warm start.

        Raises:
            CheckpointError: the checkpoint can't be trusted.
        """
        if self.initial is None:
            return self.trainer.initial()
        return checkpoint.load(self.initial)[0]

    def workings(self, run: Path, node: str, incarnation: int) -> Workings | None:
        """Return the workings that this process keeps in the run's folder; None where it keeps none."""
        if self.evidence == "off":
            return None
        return Workings(run / WORKINGS, node, incarnation, self.evidence, 1 + self.cluster.learners)

    def workload(self, threads: int = 1) -> Workload:
        """Return what is trained.

        Raises:
            CheckpointError: as `initial_values`.
        """
        return self.trainer.workload(self.data, self.initial_values(), threads)
