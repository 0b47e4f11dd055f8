"""Elastic data parallelism in a hundred lines of torch.distributed (gloo), with nothing of diloco-chaos in it.

    python train.py store HOST:PORT             keeps the key-value store in which workers find each other
    python train.py worker HOST:PORT NAME       trains; HOST:PORT is the store's

Workers that are there form a group, a *generation*, and average their gradients. Who dies breaks it for the others, who
form the next one without it; who comes late asks for one. Whoever has made most rounds gives the weights to all.
"""

from __future__ import annotations

import os
import sys
import time
import zlib
from datetime import timedelta

import torch
from torch import distributed as dist

ROUND_S = 0.05
QUIET_S = 0.3       # nobody has come for so long: all are there
TIMEOUT = timedelta(seconds=float(os.environ.get("TIMEOUT", "3")))  # until a silent member is given up
ROUNDS = 1_000_000  # until somebody ends it


class Regroup(Exception):  # noqa: N818 - nobody made a mistake
    """Somebody has gone, or wants to come."""


def generation(store: dist.Store) -> int:
    """The number of the newest."""
    return int(store.add("generation", 0))


def leave(store: dist.Store, number: int) -> None:
    """Ask for the next generation, once for all who ask."""
    if store.add(f"{number}/left", 1) == 1:
        store.add("generation", 1)


def join(store: dist.Store) -> tuple[int, dist.ProcessGroup, int, int]:
    """Be one of the newest generation: its number, its group, this worker's rank, and how many they are."""
    while True:
        number = generation(store)
        if store.check([f"{number}/world"]):  # it trains already: ask for another
            leave(store, number)
            continue
        rank = int(store.add(f"{number}/joined", 1)) - 1
        there, since = 0, time.monotonic()
        while time.monotonic() - since < QUIET_S:
            if (now := int(store.add(f"{number}/joined", 0))) != there:
                there, since = now, time.monotonic()
            time.sleep(0.02)
        world = int(store.compare_set(f"{number}/world", "", str(there)))
        if rank >= world:
            leave(store, number)
            continue
        try:
            group = dist.ProcessGroupGloo(dist.PrefixStore(f"{number}/gloo", store), rank, world, TIMEOUT)
        except RuntimeError as error:  # somebody died on the way
            print(f"generation {number} was not formed: {str(error).splitlines()[0]}")
            leave(store, number)
            continue
        print(f"generation {number}: rank {rank} of {world}")
        return number, group, rank, world


def catch_up(group: dist.ProcessGroup, rank: int, made: int, weights: torch.Tensor) -> int:
    """Everybody has the weights of whoever has made most rounds; how many those are."""
    most = torch.tensor([made * 1000 + rank])
    group.allreduce([most], dist.ReduceOp.MAX).wait()
    group.broadcast(weights, int(most) % 1000).wait()
    return int(most) // 1000


def train(store: dist.Store, name: str) -> None:
    """Until all rounds are made."""
    torch.manual_seed(sum(name.encode()))
    target, weights, made = torch.linspace(-1, 1, 64), torch.zeros(64), 0
    while made < ROUNDS:
        number, group, rank, world = join(store)
        try:
            made = catch_up(group, rank, made, weights)
            while made < ROUNDS:
                began = time.monotonic()
                if generation(store) != number:
                    raise Regroup("somebody wants to come")
                gradient = weights - target + 0.1 * torch.randn(64)
                group.allreduce([gradient]).wait()
                weights -= 0.02 * gradient / world
                made += 1
                loss = float((weights - target).square().mean())
                digest = f"{zlib.crc32(weights.numpy().tobytes()):08x}"
                print(f"committed round={made} members={world} loss={loss:.6f} time={time.time():.3f} digest={digest}")
                time.sleep(max(0.0, ROUND_S - (time.monotonic() - began)))
        except (Regroup, RuntimeError) as error:
            print(f"generation {number} is over: {str(error).splitlines()[0]}")
            leave(store, number)


def main() -> None:
    """See the module."""
    role, (host, _, port) = sys.argv[1], sys.argv[2].rpartition(":")
    store = dist.TCPStore(host, int(port), is_master=role == "store", wait_for_workers=False, timeout=TIMEOUT)
    if role == "store":
        while True:
            time.sleep(60)
    train(store, sys.argv[3])


if __name__ == "__main__":
    main()
