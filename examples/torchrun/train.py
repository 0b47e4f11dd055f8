"""Data parallelism under torchrun's elastic agent, as its documentation has it; with nothing of diloco-chaos in it.

    python train.py store HOST:PORT      keeps the rendezvous' key-value store
    torchrun ... train.py FOLDER         a worker, started by an agent; rank 0 writes checkpoints into FOLDER

When a worker dies its agent ends the others, meets the other agents again, and starts all anew: they go on from the
newest checkpoint that can be read.
"""

from __future__ import annotations

import os
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
from torch import distributed as dist

ROUND_S = 0.05
EVERY = 1            # rounds from one checkpoint to the next
TIMEOUT = timedelta(seconds=10)


def load(folder: Path) -> tuple[int, torch.Tensor]:
    """Rounds made, and the weights."""
    for file in sorted(folder.glob("step-*.pt"), reverse=True):
        try:
            kept = torch.load(file, weights_only=True)
        except (RuntimeError, OSError) as error:
            print(f"{file.name} can't be read: {error}", file=sys.stderr, flush=True)
        else:
            return int(kept["made"]), kept["weights"]
    return 0, torch.zeros(64)


def save(folder: Path, made: int, weights: torch.Tensor) -> None:
    """Whole or not at all; the one before stays."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"step-{made:06}.pt"
    torch.save({"made": made, "weights": weights}, file.with_suffix(".new"))
    file.with_suffix(".new").replace(file)
    for older in sorted(folder.glob("step-*.pt"))[:-2]:
        older.unlink()


def train(folder: Path) -> None:
    """Until somebody ends it."""
    dist.init_process_group("gloo", timeout=TIMEOUT)
    rank, world = dist.get_rank(), dist.get_world_size()
    target, (made, weights) = torch.linspace(-1, 1, 64), load(folder)
    while True:
        began = time.monotonic()
        gradient = weights - target + 0.1 * torch.randn(64)
        dist.all_reduce(gradient)
        weights -= 0.02 * gradient / world
        made += 1
        loss = float((weights - target).square().mean())
        if rank == 0 and made % EVERY == 0:
            save(folder, made, weights)
        print(f"[{os.environ['LOCAL_RANK']}] committed round={made} members={world} loss={loss:.6f} "
              f"time={time.time():.3f}", flush=True)
        time.sleep(max(0.0, ROUND_S - (time.monotonic() - began)))


def main() -> None:
    """See the module."""
    if sys.argv[1] == "store":
        host, _, port = sys.argv[2].rpartition(":")
        store = dist.TCPStore(host, int(port), is_master=True, wait_for_workers=False)
        while store.port:
            time.sleep(60)
    train(Path(sys.argv[1]))


if __name__ == "__main__":
    main()
