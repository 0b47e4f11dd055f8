"""The outer optimizer: SGD with Nesterov momentum, per fragment, on the syncer."""

from __future__ import annotations

import numpy as np

from harness.trainer.tensors import Tensors


def nesterov(value: Tensors, momentum: Tensors, gradient: Tensors, lr: float, mu: float) -> tuple[Tensors, Tensors]:
    """One outer step: buf = mu * buf + d; theta -= lr * (d + mu * buf). Returns the new (theta, buf)."""
    buffer = {name: np.float32(mu) * momentum[name] + gradient[name] for name in value}
    moved = {name: value[name] - np.float32(lr) * (gradient[name] + np.float32(mu) * buffer[name]) for name in value}
    return moved, buffer
