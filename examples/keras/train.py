"""A small network trained by Keras (on torch) in one process, with nothing of diloco-chaos in it.

    python train.py FOLDER      trains to the end; its backup is in FOLDER, and it goes on from there
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

os.environ.setdefault("KERAS_BACKEND", "torch")

import keras
import numpy

EPOCHS, EPOCH = 16, 10      # a backup after each epoch
STEP_S = 0.05               # a step takes at least as long as this


class Batches(keras.utils.PyDataset):
    """Ten batches an epoch, in another order in each."""

    epoch = 0

    def __init__(self) -> None:
        super().__init__()
        self.inputs = numpy.random.default_rng(0).normal(size=(EPOCH * 8, 16)).astype("float32")

    def __len__(self) -> int:
        return EPOCH

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        order = numpy.random.default_rng(self.epoch).permutation(len(self.inputs))
        inputs = self.inputs[order[index * 8:(index + 1) * 8]]
        return inputs, numpy.sin(inputs[:, :4])


class Steps(keras.callbacks.Callback):
    """Print a line for every step; Keras' own bar shows the mean since the epoch began, as this does."""

    def __init__(self, batches: Batches) -> None:
        super().__init__()
        self.batches, self.epoch = batches, 0

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Have data and dropout begin with the epoch: a backup has its number, but neither data nor random state."""
        self.epoch = self.batches.epoch = epoch
        for layer in self.model.layers:
            if isinstance(layer, keras.layers.Dropout):
                layer.seed_generator.state.assign([0, epoch])

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Print the line."""
        print(f"step={self.epoch * EPOCH + batch + 1} loss={logs['loss']}", flush=True)
        time.sleep(STEP_S)


def network() -> keras.Model:
    """It learns a random projection."""
    model = keras.Sequential([keras.Input((16,)), keras.layers.Dense(64, activation="relu"),
                              keras.layers.Dropout(0.1, seed=1), keras.layers.Dense(4)])
    rate = keras.optimizers.schedules.CosineDecay(0.0, EPOCHS * EPOCH, warmup_target=1e-2, warmup_steps=20)
    model.compile(optimizer=keras.optimizers.AdamW(rate), loss="mse")
    return model


def main() -> None:
    """See the module."""
    keras.utils.set_random_seed(0)
    backup = keras.callbacks.BackupAndRestore(sys.argv[1], save_freq="epoch", double_checkpoint=True)
    batches = Batches()
    network().fit(batches, epochs=EPOCHS, verbose=0, shuffle=False, callbacks=[backup, Steps(batches)])


if __name__ == "__main__":
    main()
