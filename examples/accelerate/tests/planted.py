"""train.py with a bug that people make when they resume.

    torchrun ... planted.py BUG FOLDER
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))
import train

BUG = sys.argv.pop(1)
resume, skip, parts, loss_of = train.resume, train.skip_first_batches, train.parts, nn.functional.mse_loss
resumed = False


def loaded(accelerator: Accelerator, folder: Path) -> int:
    """Resume as it should, but for one thing."""
    global resumed
    model, optimizer, schedule = accelerator._models[0], accelerator._optimizers[0], accelerator._schedulers[0]
    fresh, random = schedule.state_dict(), torch.get_rng_state()
    step = resume(accelerator, folder)
    resumed = step > 0
    if not resumed:
        return step
    if BUG == "optimizer not restored":
        optimizer.state.clear()
    elif BUG == "warm-up again":
        schedule.load_state_dict(fresh)
    elif BUG == "scheduler not restored":
        type(schedule.scheduler).step = lambda inner: None
    elif BUG == "random state not restored":
        torch.set_rng_state(random)
    elif BUG == "NaN after the restart":
        next(model.parameters()).data.view(-1)[0] = float("nan")
    elif BUG == "weights of an older checkpoint":
        accelerator.unwrap_model(model).load_state_dict(older(folder / f"step-{step - 20}"))
    return step


def older(checkpoint: Path) -> dict[str, Any]:
    """The weights of a checkpoint."""
    from safetensors.torch import load_file
    return load_file(checkpoint / "model.safetensors")


def skipped(change: int | None) -> Callable[..., Any]:
    """Skip other batches than those that were trained; None: none."""
    return lambda batches, done: skip(batches, done + change) if change is not None else batches


def loss_of_half(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the loss of half of the samples after a restart: the other half of what is accumulated is lost."""
    part = len(outputs) // (2 if resumed else 1)
    return loss_of(outputs[:part], targets[:part])


def seeded_anew(seed: int) -> None:
    """Each start has a seed of its own, the same in all its processes."""
    set_seed(seed + os.getppid())


set_seed = train.set_seed


def main() -> None:
    """See the module."""
    train.resume = loaded
    if BUG == "data order not resumed":
        train.skip_first_batches = skipped(None)
    elif BUG == "a batch trained twice":
        train.skip_first_batches = skipped(-1)
    elif BUG == "seeded anew at each start":
        train.set_seed = seeded_anew
        train.skip_first_batches = lambda batches, done: skip(anew(batches), done)
    elif BUG == "gradient accumulation lost":
        nn.functional.mse_loss = loss_of_half
    elif BUG == "step off by one":
        show = Accelerator.print
        Accelerator.print = lambda self, text, **how: show(self, behind(text), **how)
    train.main()


def anew(batches: Any) -> Any:
    """The sampler's seed is this start's."""
    batches.batch_sampler.batch_sampler.sampler.initial_seed = os.getppid()
    return batches


def behind(text: str) -> str:
    """A line that tells one step fewer after a restart."""
    step, _, rest = text.removeprefix("step=").partition(" ")
    return f"step={int(step) - resumed} {rest}"


if __name__ == "__main__":
    main()
