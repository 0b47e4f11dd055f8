"""A state that a group of data-parallel peers can begin from, and the file that it is kept in."""

from __future__ import annotations

from dataclasses import dataclass, field

from diloco_chaos.harness.base.tensors import Tensors
from diloco_chaos.harness.record.storage import checkpoint
from diloco_chaos.harness.record.storage.disk import Disk
from diloco_chaos.harness.trainer.config.cluster_config import TrainerConfig
from diloco_chaos.harness.trainer.coordinator.fragment_state import fragment_file
from diloco_chaos.harness.trainer.model.replica import begun
from diloco_chaos.harness.trainers.core.effects import Commit


@dataclass(frozen=True)
class GroupCheckpoint:
    """A state that a group can begin from."""

    step: int
    tokens: int
    """Trained on before it."""
    state: Tensors
    incarnations: dict[str, int]
    """The newest that were heard of: an older one must be refused by the hub's own successor, too."""
    resumed: bool = False
    """It was found on the disk."""
    repaired: dict[str, str] = field(default_factory=dict)
    """Damaged or missing files -> why, where the other copy was whole."""

    @classmethod
    def restored(cls, disk: Disk, config: TrainerConfig, initial: Tensors) -> GroupCheckpoint:
        """Return the newest checkpoint on the disk, or the initial state.

        Raises:
            CheckpointError: there was one, and no copy of it can be trusted.
        """
        name, present = fragment_file(0), checkpoint.tidied(disk)
        if present.intersection(checkpoint.copies(name)):
            content, damaged = checkpoint.load_either(disk, name, present)
            meta = content.meta
            return cls(int(meta["version"]), int(meta["tokens"]), content.tensors, dict(meta["incarnations"]), True,
                       damaged)
        step = 0 if config.mode == "synchronous" else config.warm_start
        return cls(step, step * config.tokens_of_all, begun(initial), {})

    def meta(self) -> dict[str, object]:
        """Return all but the tensors."""
        return {"version": self.step, "tokens": self.tokens, "incarnations": self.incarnations}

    def commit(self) -> Commit:
        """Save it."""
        return Commit(fragment_file(0), self.state, self.meta())
