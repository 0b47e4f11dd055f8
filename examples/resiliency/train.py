"""Data parallelism under NVIDIA's ft_launcher, with heartbeats, and nothing of diloco-chaos in it.

    ft_launcher --nproc-per-node 2 ... train.py FOLDER

trains to the end. Checkpoints are in FOLDER: rank 0 writes them, and all go on from the newest one that can be read. A
rank that gets SIGTERM has all save a checkpoint and end.
"""

from __future__ import annotations

import signal
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from nvidia_resiliency_ext.fault_tolerance import RankMonitorClient
from torch import distributed as dist
from torch import nn
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
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.model = DistributedDataParallel(network)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2)
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(self.optimizer, max_lr=1e-2, total_steps=STEPS + 1)
        self.step = 0
        torch.manual_seed(self.rank)

    def state_dict(self) -> dict[str, Any]:
        """Return what is kept; each rank has a random state of its own, so all ranks must call this."""
        mine = torch.get_rng_state()
        random = [torch.empty_like(mine) for _ in range(self.world)]
        dist.all_gather(random, mine)
        return {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(),
                "schedule": self.schedule.state_dict(), "step": self.step, "random": random}

    def load_state_dict(self, kept: dict[str, Any]) -> None:
        """Go on from there."""
        self.model.load_state_dict(kept["model"])
        self.optimizer.load_state_dict(kept["optimizer"])
        self.schedule.load_state_dict(kept["schedule"])
        self.step = kept["step"]
        torch.set_rng_state(kept["random"][self.rank])


def batch(step: int, rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the eight samples of a step and a rank; each epoch has another order."""
    inputs = torch.randn(16 * EPOCH, 16, generator=torch.Generator().manual_seed(0))
    epoch, number = divmod(step, EPOCH)
    order = torch.randperm(len(inputs), generator=torch.Generator().manual_seed(epoch))
    mine = inputs[order[16 * number + 8 * rank:][:8]]
    return mine, mine[:, :4].sin()


def save(job: Job, folder: Path) -> None:
    """Write a checkpoint, whole or not at all."""
    kept = job.state_dict()
    if job.rank == 0:
        file = folder / f"step-{job.step:04}.pt"
        torch.save(kept, file.with_suffix(".new"))
        file.with_suffix(".new").replace(file)


def load(folder: Path) -> dict[str, Any] | None:
    """Read the newest checkpoint that can be read."""
    for file in sorted(folder.glob("step-*.pt"), reverse=True):
        try:
            kept: dict[str, Any] = torch.load(file, weights_only=True)
        except (RuntimeError, OSError) as error:
            print(f"{file.name} can't be read: {error}", file=sys.stderr, flush=True)
        else:
            return kept
    return None


def train(job: Job, folder: Path, monitor: RankMonitorClient) -> None:
    """Train until all steps are made, or a rank is asked to end."""
    asked: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: asked.append(number))
    if kept := load(folder):
        job.load_state_dict(kept)
    while job.step < STEPS:
        inputs, targets = batch(job.step, job.rank)
        loss = nn.functional.mse_loss(job.model(inputs), targets)
        job.optimizer.zero_grad()
        loss.backward()
        job.optimizer.step()
        job.schedule.step()
        job.step += 1
        total = torch.stack([loss.detach(), torch.tensor(float(bool(asked)))])
        dist.all_reduce(total)
        mean, stop = total[0].item() / job.world, total[1].item() > 0
        if job.rank == 0:
            print(f"step={job.step} loss={mean}", flush=True)
        if job.step % EVERY == 0 or stop:
            save(job, folder)
        if stop:
            return
        monitor.send_heartbeat()
        time.sleep(STEP_S)


def main() -> None:
    """See the module."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    monitor = RankMonitorClient()
    monitor.init_workload_monitoring()
    dist.init_process_group("gloo", timeout=timedelta(minutes=5))
    train(Job(), folder, monitor)
    monitor.shutdown_workload_monitoring()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
