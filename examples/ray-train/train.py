"""Data parallelism by Ray Train: two workers, one on each node, with gloo between them.

    python train.py HOST:PORT STEPS FOLDER        the driver; FOLDER keeps checkpoints

A worker appends every step that it has made, with the mean loss of all, to the file that ROUNDS names in its
environment, which it has from its node. Ray may give it another rank when it starts it again.
"""

import json
import os
import sys
import tempfile
import time

import ray
import ray.train
import ray.train.torch
import torch
import torch.distributed

STEP_S = 0.05
EVERY = 50
"""Steps from one checkpoint to the next. Ray takes one report in two seconds: who reports more often waits for it."""


def restored(model: torch.nn.Module) -> int:
    """Load the newest checkpoint; the step that it was made at."""
    if (kept := ray.train.get_checkpoint()) is None:
        return 0
    with kept.as_directory() as folder:
        state = torch.load(os.path.join(folder, "model.pt"), weights_only=True)
    model.load_state_dict(state["model"])
    return int(state["step"])


def report(model: torch.nn.Module, step: int, loss: float) -> None:
    """Every worker tells how far it is, and the first one brings the checkpoint."""
    first = ray.train.get_context().get_world_rank() == 0
    with tempfile.TemporaryDirectory() as folder:
        if first:
            torch.save({"model": model.state_dict(), "step": step}, os.path.join(folder, "model.pt"))
        ray.train.report({"loss": loss}, checkpoint=ray.train.Checkpoint.from_directory(folder) if first else None)


def work(config: dict[str, int]) -> None:
    """What every worker does."""
    plain = torch.nn.Linear(32, 1)
    first = restored(plain)
    model = ray.train.torch.prepare_model(plain)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    context = ray.train.get_context()
    rank, members = context.get_world_rank(), context.get_world_size()
    truth = torch.linspace(-1, 1, 32).unsqueeze(1)
    for step in range(first + 1, config["steps"] + 1):
        began = time.monotonic()
        numbers = torch.Generator().manual_seed(1000 * step + rank)   # the same data when a step is made again
        inputs = torch.randn(16, 32, generator=numbers)
        noise = torch.randn(16, 1, generator=numbers) / 4
        loss = torch.nn.functional.mse_loss(model(inputs), inputs @ truth + noise)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        torch.distributed.all_reduce(told := loss.detach() / members)
        with open(os.environ["ROUNDS"], "a") as file:
            print(json.dumps({"round": step, "members": members, "loss": told.item(), "time": time.time()}), file=file)
        if step % EVERY == 0 or step == config["steps"]:
            report(plain, step, loss.item())
        time.sleep(max(0.0, STEP_S - (time.monotonic() - began)))


if __name__ == "__main__":
    address, steps, folder = sys.argv[1:]
    ray.init(address=address)
    ray.train.torch.TorchTrainer(
        work, train_loop_config={"steps": int(steps)},
        scaling_config=ray.train.ScalingConfig(num_workers=2, placement_strategy="SPREAD"),
        run_config=ray.train.RunConfig(storage_path=folder, failure_config=ray.train.FailureConfig(max_failures=10)),
    ).fit()
