"""train.py with a bug that people make when they resume, in a Trainer that is otherwise as it was.

    python planted.py BUG FOLDER
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from transformers import Trainer
from transformers import trainer as library

sys.path.insert(0, str(Path(__file__).parents[1]))
import train


class Planted(Trainer):
    """What resumes here is what is replaced below."""


def resumed(method: str, after: Callable[..., None]) -> None:
    """Have something done after a method of a Trainer that resumes."""
    original = getattr(Trainer, method)

    def replaced(self: Trainer, checkpoint: str | None, *args: object) -> None:
        original(self, checkpoint, *args)
        if checkpoint:
            after(self)
    setattr(Planted, method, replaced)


def older(checkpoint: str) -> str:
    """The checkpoint before this one."""
    name, _, step = checkpoint.rpartition("-")
    return f"{name}-{int(step) - 20}"


def forget_moments(trainer: Trainer) -> None:
    """AdamW begins with moments of zero."""
    trainer.optimizer.state.clear()


def begin_schedule(trainer: Trainer) -> None:
    """The schedule begins with its first step."""
    trainer.lr_scheduler.last_epoch = 0


def no_schedule(trainer: Trainer) -> None:
    """The learning rate is the highest there is, from here on."""
    trainer.lr_scheduler.lr_lambdas = [lambda step: 1.0] * 2


def ruin(trainer: Trainer) -> None:
    """A weight is no number."""
    next(iter(trainer.model.parameters())).data[0] = float("nan")


def plant(bug: str, again: bool) -> dict[str, object]:
    """Put one bug into the class; what it takes instead in the arguments. `again`: this is no first start."""
    if bug == "data order not resumed":
        return {"ignore_data_skip": True}
    if bug == "seeded anew at each start":
        torch.manual_seed(os.getpid())
        return {"seed": os.getpid()}
    if bug == "gradient accumulation lost":
        return {"gradient_accumulation_steps": 1} if again else {}
    if bug == "optimizer not restored":
        resumed("_load_optimizer_and_scheduler", forget_moments)
    elif bug == "warm-up again":
        resumed("_load_optimizer_and_scheduler", begin_schedule)
    elif bug == "scheduler not restored":
        resumed("_load_optimizer_and_scheduler", no_schedule)
    elif bug == "random state not restored":
        Planted._load_rng_state = lambda self, checkpoint: None
    elif bug == "NaN after the restart":
        resumed("_load_from_checkpoint", ruin)
    elif bug == "weights of an older checkpoint":
        load = Trainer._load_from_checkpoint
        Planted._load_from_checkpoint = lambda self, checkpoint, *args: load(self, older(checkpoint), *args)
    elif bug == "step off by one":
        begin = Trainer._init_training_state

        def off_by_one(self: Trainer, *args: object, **kwargs: object) -> object:
            done = begin(self, *args, **kwargs)
            self.state.global_step -= again
            return done
        Planted._init_training_state = off_by_one
    elif bug == "a batch trained twice":
        skip = library.skip_first_batches
        library.skip_first_batches = lambda batches, number: skip(batches, number - 1)
    else:
        sys.exit(f"no such bug: {bug}")
    return {}


def main() -> None:
    """See the module."""
    bug, folder = sys.argv[1], Path(sys.argv[2])
    again = any(folder.glob("checkpoint-*"))
    changed = plant(bug, again)
    arguments = train.TrainingArguments
    train.TrainingArguments = lambda **given: arguments(**given | changed)
    train.Trainer = Planted
    sys.argv[1:] = [str(folder)]
    train.main()


if __name__ == "__main__":
    main()
