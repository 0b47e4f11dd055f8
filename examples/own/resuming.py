"""A job of one process that goes on from its newest whole checkpoint, with nothing of diloco-chaos in it.

    python resuming.py FOLDER      trains to the end; its checkpoints are in FOLDER

A checkpoint is written beside its name, synced and renamed, and begins with a sum of what follows: one that is not
whole is passed over. Where no step is made for long the process ends itself, and its scheduler starts it again.
"""

from __future__ import annotations

import io
import os
import sys
import threading
import time
import zlib
from pathlib import Path
from typing import Any

import torch
from torch import nn

STEPS, EVERY, STEP_S = 160, 20, 0.04
PATIENCE_S = 4.0    # no step for so long: it hangs
SAMPLES, BATCH = 4096, 8


class Job:
    """All that a step depends on."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 1))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2)
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(self.optimizer, max_lr=1e-2, total_steps=STEPS)
        self.order = torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(1))
        self.made, self.taken = 0, 0    # steps, and batches

    def state(self) -> dict[str, Any]:
        """What a checkpoint has."""
        return {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(),
                "schedule": self.schedule.state_dict(), "random": torch.get_rng_state(),
                "made": self.made, "taken": self.taken}

    def restore(self, state: dict[str, Any]) -> None:
        """Be as the job was that saved this."""
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.schedule.load_state_dict(state["schedule"])
        torch.set_rng_state(state["random"])
        self.made = state["made"]
        self.taken = state["taken"]

    def batch(self) -> tuple[torch.Tensor, torch.Tensor]:
        """The next samples: sums of squares to be learned."""
        first = self.taken * BATCH
        inputs = torch.stack([torch.randn(16, generator=torch.Generator().manual_seed(int(number)))
                              for number in self.order[first:first + BATCH]])
        self.taken += 1
        return inputs, inputs.square().mean(1, keepdim=True)

    def step(self) -> None:
        """Make one."""
        inputs, targets = self.batch()
        loss = nn.functional.mse_loss(self.model(inputs), targets)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.schedule.step()
        self.made += 1
        print(f"step={self.made} loss={loss.item():.9f} batch={self.taken - 1} time={time.time():.3f}", flush=True)


def save(folder: Path, job: Job) -> None:
    """Have a checkpoint on the disk; none is half there under its own name."""
    content = io.BytesIO()
    torch.save(job.state(), content)
    final = folder / f"step-{job.made:04}.pt"
    draft = final.with_suffix(".tmp")
    with draft.open("wb") as file:
        file.write(zlib.crc32(content.getvalue()).to_bytes(4, "big") + content.getvalue())
        file.flush()
        os.fsync(file.fileno())
    draft.rename(final)


def go_on(folder: Path, job: Job) -> None:
    """From the newest checkpoint that is whole, if there is one."""
    for path in sorted(folder.glob("step-*.pt"), reverse=True):
        read = path.read_bytes()
        if zlib.crc32(read[4:]) != int.from_bytes(read[:4], "big"):
            print(f"{path.name} is not whole")
            continue
        job.restore(torch.load(io.BytesIO(read[4:])))
        print(f"goes on from {path.name}")
        return


def watch(job: Job) -> None:
    """End the process where it makes no step for long."""
    made, since = -1, time.monotonic()
    while True:
        time.sleep(0.1)
        if job.made != made:
            made, since = job.made, time.monotonic()
        elif time.monotonic() - since > PATIENCE_S:
            print(f"no step for {PATIENCE_S} s", flush=True)
            os._exit(1)


def main() -> None:
    """See the module."""
    folder, job = Path(sys.argv[1]), Job()
    folder.mkdir(parents=True, exist_ok=True)
    go_on(folder, job)
    threading.Thread(target=watch, args=[job], daemon=True).start()
    while job.made < STEPS:
        began = time.monotonic()
        job.step()
        if job.made % EVERY == 0:
            save(folder, job)
        time.sleep(max(0.0, STEP_S - (time.monotonic() - began)))


if __name__ == "__main__":
    main()
