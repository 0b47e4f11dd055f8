"""Data parallelism by Monarch: a driver and a mesh of three trainers, and nothing of diloco-chaos in it.

    python train.py FOLDER

trains to the end. In each step every trainer computes a gradient in a process of its own; the driver averages them,
and has the weights, the optimizer and the checkpoints. It goes on from the newest checkpoint in FOLDER.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import torch
from monarch.actor import Actor, current_rank, endpoint, this_host
from torch import nn

STEPS = 160
EVERY = 20
EPOCH = 50
TRAINERS = 3
STEP_S = 0.05       # a step takes at least as long as this


def network() -> nn.Module:
    """Return the network, always with the same first weights."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4))


def batch(step: int, rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the eight samples of a step and a trainer; each epoch has another order."""
    share = 8 * TRAINERS
    inputs = torch.randn(share * EPOCH, 16, generator=torch.Generator().manual_seed(0))
    epoch, number = divmod(step, EPOCH)
    order = torch.randperm(len(inputs), generator=torch.Generator().manual_seed(epoch))
    mine = inputs[order[share * number + 8 * rank:][:8]]
    return mine, mine[:, :4].sin()


class Trainer(Actor):
    """Computes gradients; everything else is the driver's."""

    def __init__(self) -> None:
        torch.set_num_threads(1)
        self.rank = current_rank().rank
        self.model = network()

    @endpoint
    def gradient(self, step: int, weights: torch.Tensor) -> tuple[torch.Tensor, float]:
        """Return the gradient of a step's batch with these weights, and the loss."""
        nn.utils.vector_to_parameters(weights, self.model.parameters())
        inputs, targets = batch(step, self.rank)
        loss = nn.functional.mse_loss(self.model(inputs), targets)
        self.model.zero_grad()
        loss.backward()
        return torch.cat([parameter.grad.flatten() for parameter in self.model.parameters()]), loss.item()


class Job:
    """Everything that a checkpoint has to keep."""

    def __init__(self) -> None:
        self.weights = nn.Parameter(nn.utils.parameters_to_vector(network().parameters()).detach())
        self.optimizer = torch.optim.AdamW([self.weights], lr=1e-2)
        self.step = 0

    def save(self, folder: Path) -> None:
        """Write a checkpoint, whole or not at all."""
        file = folder / f"step-{self.step:04}.pt"
        torch.save({"weights": self.weights.detach(), "optimizer": self.optimizer.state_dict(), "step": self.step},
                   file.with_suffix(".new"))
        file.with_suffix(".new").replace(file)

    def load(self, folder: Path) -> None:
        """Go on from the newest checkpoint that can be read, if there is one."""
        for file in sorted(folder.glob("step-*.pt"), reverse=True):
            try:
                kept = torch.load(file, weights_only=True)
            except (RuntimeError, OSError) as error:
                print(f"{file.name} can't be read: {error}", file=sys.stderr, flush=True)
                continue
            self.weights.data = kept["weights"]
            self.optimizer.load_state_dict(kept["optimizer"])
            self.step = kept["step"]
            return


def train(job: Job, folder: Path) -> None:
    """Train until all steps are made."""
    trainers = this_host().spawn_procs(per_host={"trainers": TRAINERS}, name="trainers").spawn("trainer", Trainer)
    while job.step < STEPS:
        results = list(trainers.gradient.call(job.step, job.weights.detach()).get().values())
        job.weights.grad = torch.stack([gradient for gradient, _ in results]).mean(dim=0)
        job.optimizer.step()
        job.step += 1
        print(f"step={job.step} loss={sum(loss for _, loss in results) / len(results)}", flush=True)
        if job.step % EVERY == 0:
            job.save(folder)
        time.sleep(STEP_S)


def main() -> None:
    """See the module."""
    torch.set_num_threads(1)
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    job = Job()
    job.load(folder)
    train(job, folder)


if __name__ == "__main__":
    main()
