"""A small network trained by Lightning on one processor, with nothing of diloco-chaos in it.

    python train.py FOLDER      trains to the end; its checkpoints are in FOLDER, and it goes on from the newest

Lightning restores weights, optimizer, schedule and counters. Where its data were, and the random state that dropout
draws from, the user has to keep: `Order` and `RandomState` do.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lightning
import torch
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

STEPS = 160
EPOCH = 50
STEP_S = 0.05       # a step takes at least as long as this


class Order(DataLoader):
    """Batches in another order in each epoch; it goes on where it was when it was saved."""

    epoch, batch = 0, 0

    def __iter__(self) -> Iterator[Any]:
        order = torch.randperm(len(self.dataset), generator=torch.Generator().manual_seed(self.epoch))
        size = self.batch_size
        while self.batch < len(self):
            yield self.dataset[order[self.batch * size:(self.batch + 1) * size]]
            self.batch += 1
        self.epoch, self.batch = self.epoch + 1, 0

    def state_dict(self) -> dict[str, int]:
        """Return the epoch, and the batch that comes next."""
        return {"epoch": self.epoch, "batch": self.batch + 1}

    def load_state_dict(self, kept: dict[str, int]) -> None:
        """Go on there."""
        self.epoch, self.batch = kept["epoch"], kept["batch"]


class RandomState(Callback):
    """The random state is part of a checkpoint, and restored before the first batch."""

    kept: torch.Tensor | None = None

    def state_dict(self) -> dict[str, Any]:
        """Return the state as it is now."""
        return {"random": torch.get_rng_state()}

    def load_state_dict(self, kept: dict[str, Any]) -> None:
        """Keep it until the first batch: what comes before draws numbers, too."""
        self.kept = kept["random"]

    def on_train_batch_start(self, *_: Any) -> None:
        """Restore it."""
        if self.kept is not None:
            torch.set_rng_state(self.kept)
            self.kept = None


class Steps(Callback):
    """Print a line for every step."""

    def on_train_batch_end(self, trainer: lightning.Trainer, module: Any, outputs: Any, *_: Any) -> None:
        """Print it."""
        print(f"step={trainer.global_step} loss={float(outputs['loss'])}", flush=True)
        time.sleep(STEP_S)


class Network(lightning.LightningModule):
    """Learns a random projection."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 4))

    def training_step(self, batch: Any, _: int) -> torch.Tensor:
        """Return the loss of a batch."""
        inputs, targets = batch
        return nn.functional.mse_loss(self.layers(inputs), targets)

    def configure_optimizers(self) -> Any:
        """AdamW; the rate rises for twenty steps, and falls to the end."""
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-2)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1e-2, total_steps=STEPS + 1)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def data() -> Order:
    """Fifty batches of eight."""
    inputs = torch.randn(8 * EPOCH, 16, generator=torch.Generator().manual_seed(0))
    return Order(TensorDataset(inputs, inputs[:, :4].sin()), batch_size=8)


def main() -> None:
    """See the module."""
    folder = Path(sys.argv[1])
    lightning.seed_everything(0)
    checkpoints = ModelCheckpoint(folder, filename="{step}", every_n_train_steps=20, save_top_k=-1, save_last=True)
    trainer = lightning.Trainer(
        accelerator="cpu", devices=1, max_steps=STEPS, logger=False, enable_progress_bar=False,
        enable_model_summary=False, callbacks=[RandomState(), Steps(), checkpoints])
    trainer.fit(Network(), data(), ckpt_path="last")


if __name__ == "__main__":
    main()
