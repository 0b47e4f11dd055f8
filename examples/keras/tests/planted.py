"""train.py with a bug that people make when they resume.

    python planted.py BUG FOLDER
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
import train

keras = train.keras
FOLDER = Path(sys.argv[2])
BUG = sys.argv[1]
AGAIN = (FOLDER / "training_metadata.json").exists()
begin, show = train.Steps.on_epoch_begin, train.Steps.on_train_batch_end
load = keras.callbacks.BackupAndRestore._load_model


def after_load(change: Callable[[Any], object]) -> None:
    """Change the model when it has been restored."""
    def replaced(self: Any) -> None:
        load(self)
        if AGAIN:
            change(self.model)
    keras.callbacks.BackupAndRestore._load_model = replaced


def forget_moments(model: Any) -> None:
    """AdamW begins with moments of zero, and the schedule goes on."""
    for variable in model.optimizer.variables:
        if variable.shape:  # the number of steps and the learning rate have none
            variable.assign(variable * 0)


def set_iterations(number: int) -> Callable[[Any], object]:
    """The schedule is at this step."""
    return lambda model: model.optimizer.iterations.assign(number)


def no_schedule(model: Any) -> None:
    """The learning rate stays the highest there is."""
    model.optimizer._learning_rate = keras.Variable(1e-2, trainable=False)


def ruin(model: Any) -> None:
    """A weight is no number."""
    weight = model.trainable_variables[0]
    weight.assign(weight * float("nan"))


def older_weights(model: Any) -> None:
    """Weights are those of the backup before this one; the rest is not."""
    kept = [variable.numpy() for variable in model.optimizer.variables]
    before = FOLDER / "older.weights.h5"
    shutil.copy(FOLDER / "latest.weights.h5.bkp", before)
    model.load_weights(before)
    for variable, value in zip(model.optimizer.variables, kept, strict=True):
        variable.assign(value)


def batch_again(self: train.Batches, index: int) -> Any:
    """Every batch is the one before the right one, so that the last of the epoch before is trained twice."""
    epoch, number = divmod(self.epoch * train.EPOCH + index - 1, train.EPOCH)
    now, self.epoch = self.epoch, epoch
    try:
        return item(self, number)
    finally:
        self.epoch = now


def other_data(by: int) -> None:
    """The data are those of another epoch."""
    def replaced(self: train.Steps, epoch: int, logs: Any = None) -> None:
        begin(self, epoch)
        self.batches.epoch += by
    train.Steps.on_epoch_begin = replaced


def without_dropout(self: train.Steps, epoch: int, logs: Any = None) -> None:
    """Only the data begin with the epoch."""
    self.epoch = self.batches.epoch = epoch


item = train.Batches.__getitem__


def half(self: train.Batches, index: int) -> Any:
    """Half of the samples: the other half of what is accumulated is lost."""
    return tuple(part[:4] for part in item(self, index))


def plant(bug: str) -> None:
    """Put one bug into the trainer."""
    if bug == "data order not resumed":
        other_data(-json.loads((FOLDER / "training_metadata.json").read_text())["epoch"] if AGAIN else 0)
    elif bug == "seeded anew at each start":
        other_data(os.getpid())
    elif bug == "gradient accumulation lost":
        train.Batches.__getitem__ = half if AGAIN else item
    elif bug == "optimizer not restored":
        after_load(forget_moments)
    elif bug == "scheduler not restored":
        after_load(no_schedule)
    elif bug == "warm-up again":
        after_load(set_iterations(0))
    elif bug == "random state not restored":
        train.Steps.on_epoch_begin = without_dropout
    elif bug == "NaN after the restart":
        after_load(ruin)
    elif bug == "weights of an older checkpoint":
        after_load(older_weights)
    elif bug == "step off by one":
        train.Steps.on_train_batch_end = lambda self, batch, logs=None: show(self, batch - AGAIN, logs)
    elif bug == "a batch trained twice":
        train.Batches.__getitem__ = batch_again if AGAIN else item
    else:
        sys.exit(f"no such bug: {bug}")


def main() -> None:
    """See the module."""
    plant(sys.argv.pop(1))
    train.main()


if __name__ == "__main__":
    main()
