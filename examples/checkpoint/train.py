"""Data parallelism under torchrun with torch.distributed.checkpoint, and nothing of diloco-chaos in it.

    torchrun --nproc-per-node 2 --max-restarts 3 train.py FOLDER

trains to the end; checkpoints are in FOLDER, and it goes on from the newest whole one.
"""

from __future__ import annotations

import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from torch import distributed as dist
from torch import nn
from torch.distributed import checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.nn.parallel import DistributedDataParallel

STEPS = 160
EVERY = 20
EPOCH = 50
STEP_S = 0.05       # a step takes at least as long as this


class Job:
    """Everything that a checkpoint has to keep: a network that learns a random projection."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        network = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 4))
        self.rank = dist.get_rank()
        self.model = DistributedDataParallel(network)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2)
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(self.optimizer, max_lr=1e-2, total_steps=STEPS + 1)
        self.step = 0
        torch.manual_seed(self.rank)

    def state_dict(self) -> dict[str, Any]:
        """Return what is kept; each process has a random state of its own."""
        model, optimizer = get_state_dict(self.model, self.optimizer)
        return {"model": model, "optimizer": optimizer, "schedule": self.schedule.state_dict(), "step": self.step,
                f"random-{self.rank}": torch.get_rng_state()}

    def load_state_dict(self, kept: dict[str, Any]) -> None:
        """Go on from there."""
        set_state_dict(self.model, self.optimizer, model_state_dict=kept["model"], optim_state_dict=kept["optimizer"])
        self.schedule.load_state_dict(kept["schedule"])
        self.step = kept["step"]
        torch.set_rng_state(kept[f"random-{self.rank}"])


def batch(step: int, rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The eight samples of a step and a rank; in another order in each epoch."""
    inputs = torch.randn(16 * EPOCH, 16, generator=torch.Generator().manual_seed(0))
    epoch, number = divmod(step, EPOCH)
    order = torch.randperm(len(inputs), generator=torch.Generator().manual_seed(epoch))
    mine = inputs[order[16 * number + 8 * rank:][:8]]
    return mine, mine[:, :4].sin()


def newest(folder: Path) -> Path | None:
    """The newest checkpoint that is whole: its metadata are written last."""
    whole = [file.parent for file in folder.glob("step-*/.metadata")]
    return max(whole, key=lambda path: int(path.name.partition("-")[2]), default=None)


def train(job: Job, folder: Path) -> None:
    """Until all steps are made."""
    if checkpoint := newest(folder):
        kept = job.state_dict()
        dcp.load(kept, checkpoint_id=checkpoint)
        job.load_state_dict(kept)
    while job.step < STEPS:
        inputs, targets = batch(job.step, job.rank)
        loss = nn.functional.mse_loss(job.model(inputs), targets)
        job.optimizer.zero_grad()
        loss.backward()
        job.optimizer.step()
        job.schedule.step()
        job.step += 1
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        if job.rank == 0:
            print(f"step={job.step} loss={mean.item() / dist.get_world_size()}", flush=True)
        if job.step % EVERY == 0:
            dcp.save(job.state_dict(), checkpoint_id=folder / f"step-{job.step}")
        time.sleep(STEP_S)


def main() -> None:
    """See the module."""
    dist.init_process_group("gloo", timeout=timedelta(seconds=20))
    train(Job(), Path(sys.argv[1]))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
