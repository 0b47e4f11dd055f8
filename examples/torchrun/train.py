"""Data parallelism under torchrun's elastic agent, as its documentation has it; with nothing of diloco-chaos in it.

    python train.py store HOST:PORT      keeps the rendezvous' key-value store
    torchrun ... train.py FILE           a worker, started by an agent; FILE is the checkpoint that rank 0 writes

When a worker dies its agent ends the others, meets the other agents again, and starts all anew: they go on from the
checkpoint.
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
TIMEOUT = timedelta(seconds=10)


def load(file: Path) -> tuple[int, torch.Tensor]:
    """Rounds made, and the weights."""
    if not file.exists():
        return 0, torch.zeros(64)
    kept = torch.load(file, weights_only=True)
    return int(kept["made"]), kept["weights"]


def save(file: Path, made: int, weights: torch.Tensor) -> None:
    """Whole or not at all."""
    torch.save({"made": made, "weights": weights}, file.with_suffix(".new"))
    file.with_suffix(".new").replace(file)


def train(file: Path) -> None:
    """Until somebody ends it."""
    dist.init_process_group("gloo", timeout=TIMEOUT)
    rank, world = dist.get_rank(), dist.get_world_size()
    target, (made, weights) = torch.linspace(-1, 1, 64), load(file)
    while True:
        began = time.monotonic()
        gradient = weights - target + 0.1 * torch.randn(64)
        dist.all_reduce(gradient)
        weights -= 0.02 * gradient / world
        made += 1
        loss = float((weights - target).square().mean())
        if rank == 0:
            save(file, made, weights)
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
