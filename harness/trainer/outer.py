"""The outer optimizer: SGD with Nesterov momentum, per fragment, on the syncer."""

from __future__ import annotations

import numpy as np

from harness.trainer.tensors import Tensors


def nesterov(value: Tensors, momentum: Tensors, gradient: Tensors, lr: float, mu: float) -> tuple[Tensors, Tensors]:
    """One outer step: buf = mu * buf + d; theta -= lr * (d + mu * buf). Returns the new (theta, buf)."""
    buffer: Tensors = {name: momentum[name] * np.float32(mu) + gradient[name] for name in value}
    moved: Tensors = {}
    for name, array in value.items():
        ahead = gradient[name] + buffer[name] * np.float32(mu)
        moved[name] = np.asarray(array - ahead * np.float32(lr), np.float32)
    return moved, buffer
