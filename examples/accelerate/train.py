"""A small network trained by accelerate in two processes, with nothing of diloco-chaos in it.

    torchrun --nproc-per-node 2 train.py FOLDER

trains to the end; checkpoints are in FOLDER, and it goes on from the newest.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import torch
from accelerate import Accelerator, DataLoaderConfiguration, skip_first_batches
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

STEPS = 160
EVERY = 20
STEP_S = 0.05       # a step takes at least as long as this


def parts() -> tuple[nn.Module, torch.optim.Optimizer, DataLoader, torch.optim.lr_scheduler.LRScheduler]:
    """What is trained, and how: a network that learns a random projection, fifty batches an epoch."""
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 4))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    inputs = torch.randn(800, 16, generator=torch.Generator().manual_seed(0))
    batches = DataLoader(TensorDataset(inputs, inputs[:, :4].sin()), batch_size=8, shuffle=True,
                         generator=torch.Generator().manual_seed(0))
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1e-2, total_steps=2 * STEPS + 2)
    return model, optimizer, batches, schedule


def newest(folder: Path) -> Path | None:
    """The newest checkpoint, if there is one."""
    return max(folder.glob("step-*"), key=lambda path: int(path.name.partition("-")[2]), default=None)


def resume(accelerator: Accelerator, folder: Path) -> int:
    """Load the newest checkpoint; return the steps that were made."""
    checkpoint = newest(folder)
    if checkpoint is None:
        return 0
    accelerator.load_state(str(checkpoint))
    return int(checkpoint.name.partition("-")[2])


def save(accelerator: Accelerator, folder: Path, step: int) -> None:
    """Write a checkpoint under another name, and rename it when all processes have written their parts."""
    accelerator.save_state(str(folder / "writing"))
    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        (folder / "writing").rename(folder / f"step-{step}")
    accelerator.wait_for_everyone()


def train(accelerator: Accelerator, folder: Path) -> None:
    """Until all steps are made."""
    model, optimizer, batches, schedule = accelerator.prepare(*parts())
    step = resume(accelerator, folder)
    while step < STEPS:
        epoch, done = divmod(step, len(batches))
        batches.set_epoch(epoch)
        for inputs, targets in skip_first_batches(batches, done) if done else batches:
            loss = nn.functional.mse_loss(model(inputs), targets)
            accelerator.backward(loss)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            step += 1
            mean = accelerator.gather(loss.detach()).mean().item()
            accelerator.print(f"step={step} loss={mean}", flush=True)
            if step % EVERY == 0:
                save(accelerator, folder, step)
            if step == STEPS:
                break
            time.sleep(STEP_S)


def main() -> None:
    """See the module."""
    set_seed(0)
    accelerator = Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(use_seedable_sampler=True))
    train(accelerator, Path(sys.argv[1]))
    accelerator.end_training()


if __name__ == "__main__":
    main()
