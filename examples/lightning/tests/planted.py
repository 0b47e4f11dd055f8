"""train.py with a bug that people make when they resume.

    python planted.py BUG FOLDER
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Trainer
from lightning.pytorch.trainer.connectors.checkpoint_connector import _CheckpointConnector

sys.path.insert(0, str(Path(__file__).parents[1]))
import train

load = torch.load


def changed_on_load(change: Callable[[dict[str, Any]], object]) -> None:
    """Change a checkpoint between its file and the trainer."""
    def replaced(*args: Any, **kwargs: Any) -> Any:
        checkpoint = load(*args, **kwargs)
        if isinstance(checkpoint, dict) and "optimizer_states" in checkpoint:
            change(checkpoint)
        return checkpoint
    torch.load = replaced


def forget_moments(checkpoint: dict[str, Any]) -> None:
    """AdamW begins with moments of zero."""
    checkpoint["optimizer_states"][0]["state"] = {}


def begin_schedule(checkpoint: dict[str, Any]) -> None:
    """The schedule begins with its first step."""
    checkpoint["lr_schedulers"][0].update(last_epoch=0, _step_count=1)


def ruin(checkpoint: dict[str, Any]) -> None:
    """A weight is no number."""
    next(iter(checkpoint["state_dict"].values())).view(-1)[0] = float("nan")


def older_weights(checkpoint: dict[str, Any]) -> None:
    """Weights are those of the checkpoint before this one."""
    before = Path(sys.argv[1]) / f"step={checkpoint['global_step'] - 20}.ckpt"
    checkpoint["state_dict"] = load(before, weights_only=False)["state_dict"]


def batch_again(self: train.Order, kept: dict[str, int]) -> None:
    """The last batch is the next."""
    self.epoch, self.batch = kept["epoch"], kept["batch"] - 1


def seeded_anew(self: train.Order) -> Any:
    """The order of the data is another one in each process."""
    self.epoch += os.getpid()
    try:
        yield from original_order(self)
    finally:
        self.epoch -= os.getpid()


original_order = train.Order.__iter__


def plant(bug: str, again: bool) -> None:
    """Put one bug into the trainer. `again`: this is no first start."""
    if bug == "data order not resumed":
        train.Order.load_state_dict = lambda self, kept: None
    elif bug == "seeded anew at each start":
        train.Order.__iter__ = seeded_anew
    elif bug == "gradient accumulation lost":
        original = Trainer.__init__
        Trainer.__init__ = lambda self, **given: original(self, **given, accumulate_grad_batches=1 if again else 2)
    elif bug == "optimizer not restored":
        changed_on_load(forget_moments)
    elif bug == "scheduler not restored":
        _CheckpointConnector.restore_lr_schedulers = lambda self: None
    elif bug == "warm-up again":
        changed_on_load(begin_schedule)
    elif bug == "random state not restored":
        train.RandomState.load_state_dict = lambda self, kept: None
    elif bug == "NaN after the restart":
        changed_on_load(ruin)
    elif bug == "weights of an older checkpoint":
        changed_on_load(older_weights)
    elif bug == "step off by one":
        show = train.Steps.on_train_batch_end
        train.Steps.on_train_batch_end = lambda self, trainer, *rest: show(self, Behind(trainer, again), *rest)
    elif bug == "a batch trained twice":
        train.Order.load_state_dict = batch_again
    else:
        sys.exit(f"no such bug: {bug}")


class Behind:
    """A trainer that counts one step fewer."""

    def __init__(self, trainer: Trainer, by: int) -> None:
        self.global_step = trainer.global_step - by


def main() -> None:
    """See the module."""
    bug = sys.argv.pop(1)
    plant(bug, any(Path(sys.argv[1]).glob("*.ckpt")))
    train.main()


if __name__ == "__main__":
    main()
