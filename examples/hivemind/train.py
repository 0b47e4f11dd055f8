"""hivemind's decentralized training of a small model: peers average their gradients once they have enough of them.

    python train.py FOLDER NAME

Each peer writes the address at which it listens to FOLDER/NAME, and joins the peers whose addresses it finds there.
Nothing of diloco-chaos is in it.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import hivemind
import torch
from torch import nn

STEP_S = 0.05
BATCH = 32           # samples of a step
TARGET = 1920        # samples of an epoch, of all peers together: 30 steps of two peers


def batch(random: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Sums of squares to be learned."""
    inputs = torch.randn(BATCH, 16, generator=random)
    return inputs, inputs.square().sum(1, keepdim=True) / 16


def joined(folder: Path, name: str) -> hivemind.DHT:
    """What peers find each other by; on this machine alone."""
    folder.mkdir(parents=True, exist_ok=True)
    others = [line for path in sorted(folder.iterdir()) if path.name != name for line in path.read_text().split()]
    dht = hivemind.DHT(
        initial_peers=others, host_maddrs=["/ip4/127.0.0.1/tcp/0"], nat_port_map=False, auto_nat=False,
        use_relay=False, start=True)
    (folder / name).write_text("\n".join(map(str, dht.get_visible_maddrs())))
    print(f"listening, {len(others)} addresses of others", flush=True)
    return dht


def main() -> None:
    """See the module."""
    folder, name = sys.argv[1:]
    torch.manual_seed(0)
    torch.set_num_threads(1)
    random = torch.Generator().manual_seed(sum(name.encode()))
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 1))
    optimizer = hivemind.Optimizer(
        dht=joined(Path(folder), name), run_id="squares", batch_size_per_step=BATCH, target_batch_size=TARGET,
        params=model.parameters(), optimizer=lambda params: torch.optim.AdamW(params, lr=1e-2),
        matchmaking_time=2.0, averaging_timeout=10.0, verbose=True)
    epoch = 0
    while True:
        began = time.monotonic()
        optimizer.zero_grad()
        inputs, targets = batch(random)
        loss = nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        optimizer.step()
        if optimizer.local_epoch != epoch:
            epoch = optimizer.local_epoch
            print(f"finished epoch={epoch} loss={loss.item():.5f} time={time.time():.3f}", flush=True)
        time.sleep(max(0.0, STEP_S - (time.monotonic() - began)))


if __name__ == "__main__":
    main()
