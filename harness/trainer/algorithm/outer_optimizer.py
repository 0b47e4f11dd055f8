"""The outer optimizer: SGD with Nesterov momentum, per fragment, on the syncer."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from diloco_chaos.harness.base.tensors import Tensors


class OuterStep(NamedTuple):
    """The learning rate and the momentum with which the outer optimizer makes a step."""

    lr: float
    momentum: float
    """mu."""


def nesterov(value: Tensors, momentum: Tensors, gradient: Tensors, step: OuterStep) -> tuple[Tensors, Tensors]:
    """One outer step: buf = mu * buf + d; theta -= lr * (d + mu * buf). Returns the new (theta, buf)."""
    lr, mu = step
    buffer: Tensors = {name: momentum[name] * np.float32(mu) + gradient[name] for name in value}
    moved: Tensors = {}
    for name, array in value.items():
        ahead = gradient[name] + buffer[name] * np.float32(mu)
        moved[name] = np.asarray(array - ahead * np.float32(lr), np.float32)
    return moved, buffer
