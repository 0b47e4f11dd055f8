"""A job of one process that goes on from its newest whole checkpoint, in numpy, with nothing of diloco-chaos in it.

    python resuming.py FOLDER      trains to the end; its checkpoints are in FOLDER

A checkpoint is written beside its name, synced and renamed, and begins with a sum of what follows: one that is not
whole is passed over. Where no step is made for long the process ends itself, and its scheduler starts it again.
"""

from __future__ import annotations

import io
import json
import math
import os
import sys
import threading
import time
import zlib
from pathlib import Path
from typing import Any

import numpy as np

STEPS, EVERY, STEP_S = 160, 20, 0.04
PATIENCE_S = 10.0   # no step for so long: it hangs
FEATURES, BATCH, DROPPED = 64, 8, 0.1


class Job:
    """All that a step depends on."""

    def __init__(self) -> None:
        self.weights = np.zeros(FEATURES)
        self.velocity = np.zeros(FEATURES)
        self.random = np.random.default_rng(0)    # for dropout
        self.made = self.taken = self.scheduled = 0    # steps, batches, and steps of the schedule

    def state(self) -> dict[str, Any]:
        """What a checkpoint has."""
        return {"weights": self.weights, "velocity": self.velocity, "made": self.made, "taken": self.taken,
                "scheduled": self.scheduled, "random": json.dumps(self.random.bit_generator.state)}

    def restore(self, state: dict[str, Any]) -> None:
        """Be as the job was that saved this."""
        self.weights = state["weights"]
        self.velocity = state["velocity"]
        self.scheduled = int(state["scheduled"])
        self.random.bit_generator.state = json.loads(str(state["random"]))
        self.made = int(state["made"])
        self.taken = int(state["taken"])

    def batch(self) -> tuple[Any, Any]:
        """The next samples: sums of numbers that are to be weighed."""
        inputs = np.random.default_rng(self.taken).normal(size=(BATCH, FEATURES))
        self.taken += 1
        return inputs, inputs @ np.linspace(-1, 1, FEATURES)

    def rate(self) -> float:
        """The learning rate: a warm-up, and half a cosine."""
        self.scheduled += 1
        return 0.02 * min(1.0, self.scheduled / EVERY) * (1 + math.cos(math.pi * self.scheduled / STEPS)) / 2

    def step(self) -> None:
        """Make one, with Nesterov's momentum."""
        inputs, targets = self.batch()
        seen = inputs * (self.random.random(FEATURES) > DROPPED)
        errors = seen @ self.weights - targets
        loss = np.square(errors).mean()
        gradient = seen.T @ errors / BATCH
        self.velocity = 0.5 * self.velocity + gradient
        self.weights = self.weights - self.rate() * (gradient + 0.5 * self.velocity)
        self.made += 1
        print(f"step={self.made} loss={loss:.9f} batch={self.taken - 1} time={time.time():.3f}", flush=True)


def save(folder: Path, job: Job) -> None:
    """Have a checkpoint on the disk; none is half there under its own name."""
    content = io.BytesIO()
    np.savez(content, **job.state())
    final = folder / f"step-{job.made:04}.npz"
    draft = final.with_suffix(".tmp")
    with draft.open("wb") as file:
        file.write(zlib.crc32(content.getvalue()).to_bytes(4, "big") + content.getvalue())
        file.flush()
        os.fsync(file.fileno())
    draft.rename(final)


def go_on(folder: Path, job: Job) -> None:
    """From the newest checkpoint that is whole, if there is one."""
    for path in sorted(folder.glob("step-*.npz"), reverse=True):
        read = path.read_bytes()
        if len(read) < 4 or zlib.crc32(read[4:]) != int.from_bytes(read[:4], "big"):
            print(f"{path.name} is not whole")
            continue
        job.restore(np.load(io.BytesIO(read[4:])))
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
