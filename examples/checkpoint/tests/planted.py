"""train.py with a bug that people make when they resume.

    torchrun ... planted.py BUG FOLDER
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import torch
from torch.distributed import checkpoint as dcp

sys.path.insert(0, str(Path(__file__).parents[1]))
import train

FOLDER = Path(sys.argv[2])
batch, load, schedule = train.batch, dcp.load, torch.optim.lr_scheduler.OneCycleLR


class Planted(train.Job):
    """A job that loads in its own way."""

    bug = ""
    resumed = False

    def load_state_dict(self, kept: dict[str, Any]) -> None:
        """Load as it should, but for one thing."""
        Planted.resumed = True
        fresh, random = self.schedule.state_dict(), torch.get_rng_state()
        super().load_state_dict(kept)
        weight = next(self.model.parameters())
        if self.bug == "optimizer not restored":
            self.optimizer.state.clear()
        elif self.bug == "warm-up again":
            self.schedule.load_state_dict(fresh)
        elif self.bug == "scheduler not restored":
            type(self.schedule).step = lambda schedule: None
        elif self.bug == "random state not restored":
            torch.set_rng_state(random)
        elif self.bug == "NaN after the restart":
            weight.data.view(-1)[0] = float("nan")
        elif self.bug == "step off by one":
            self.step -= 1
        elif self.bug == "weights of an older checkpoint":
            dcp.load({"model": self.model.module.state_dict()}, checkpoint_id=FOLDER / f"step-{self.step - 20}")


def other_batch(step: int, rank: int) -> Any:
    """Return the batch of a step that is not the right one."""
    if Planted.bug == "seeded anew at each start":
        return batch(step + os.getppid() % 1000 * train.EPOCH, rank)
    if not Planted.resumed:
        return batch(step, rank)
    if Planted.bug == "data order not resumed":
        return batch(step % 20, rank)
    if Planted.bug == "a batch trained twice":
        return batch(step - 1, rank)
    return batch(step, rank)


def half(inputs_and_targets: Any) -> Any:
    """Return half of the samples: the other half of what is accumulated is lost."""
    return tuple(part[:len(part) // 2] for part in inputs_and_targets)


def main() -> None:
    """See the module."""
    Planted.bug = sys.argv.pop(1)
    train.Job = Planted
    train.batch = other_batch
    if Planted.bug == "gradient accumulation lost":
        train.batch = lambda step, rank: half(batch(step, rank)) if Planted.resumed else batch(step, rank)
    train.main()


if __name__ == "__main__":
    main()
