"""torchft's fault-tolerant training of a small model: data parallel, or DiLoCo. Nothing of diloco-chaos is in it.

    python train.py ddp    http://LIGHTHOUSE NAME     averages gradients at every step
    python train.py diloco http://LIGHTHOUSE NAME     averages what STEPS of its own have changed

A round is what the group commits together: a step of DDP, an outer step of DiLoCo.
"""

from __future__ import annotations

import sys
import time
from datetime import timedelta

import torch
from torch import distributed as dist
from torch import nn
from torchft import DistributedDataParallel, Manager, Optimizer, ProcessGroupGloo
from torchft.local_sgd import DiLoCo

STEP_S = 0.05
STEPS = 4            # of DiLoCo between two outer steps
TIMEOUT = timedelta(seconds=10)


def batch(random: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Sums of squares to be learned, 32 of them."""
    inputs = torch.randn(32, 16, generator=random)
    return inputs, inputs.square().sum(1, keepdim=True) / 16


def managed(lighthouse: str, name: str, model: nn.Module, optimizer: torch.optim.Optimizer, **how: bool) -> Manager:
    """What joins the others through the lighthouse, and brings a newcomer up to date."""
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)

    def load(state: dict[str, dict[str, object]]) -> None:
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])

    manager = Manager(
        pg=ProcessGroupGloo(timeout=TIMEOUT), load_state_dict=load, min_replica_size=1,
        state_dict=lambda: {"model": model.state_dict(), "optimizer": optimizer.state_dict()},
        replica_id=name, lighthouse_addr=lighthouse, store_addr="127.0.0.1", store_port=store.port, rank=0,
        world_size=1, hostname="127.0.0.1", timeout=TIMEOUT, **how)
    manager.kept_alive = store
    return manager


def tell(manager: Manager, told: int, loss: torch.Tensor) -> int:
    """A line for every round that the group has committed."""
    if (now := manager.current_step()) != told:
        print(f"committed step={now} members={manager.num_participants()} loss={loss.item():.5f} "
              f"time={time.time():.3f}", flush=True)
    return now


def main() -> None:
    """See the module."""
    mode, lighthouse, name = sys.argv[1:]
    torch.manual_seed(0)
    random = torch.Generator().manual_seed(sum(name.encode()))
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 1))
    inner = torch.optim.AdamW(model.parameters(), lr=1e-3)
    manager = managed(lighthouse, name, model, inner, use_async_quorum=mode == "ddp")

    def train(net: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        told = 0
        while True:
            began = time.monotonic()
            optimizer.zero_grad()
            inputs, targets = batch(random)
            loss = nn.functional.mse_loss(net(inputs), targets)
            loss.backward()
            optimizer.step()
            told = tell(manager, told, loss)
            time.sleep(max(0.0, STEP_S - (time.monotonic() - began)))

    if mode == "ddp":
        train(DistributedDataParallel(manager, model), Optimizer(manager, inner))
    outer = torch.optim.SGD(model.parameters(), lr=0.7, momentum=0.9, nesterov=True)
    with DiLoCo(manager, [model], inner, outer, sync_every=STEPS):
        train(model, inner)


if __name__ == "__main__":
    main()
