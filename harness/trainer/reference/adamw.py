"""One step of AdamW (arXiv 1711.05101, algorithm 2) as `torch.optim.AdamW` orders it, in float64, and how far float32
may be off from it.

The gradient is clipped to norm 1; the weights decay by themselves; m <- b1 m + (1 - b1) g, v <- b2 v + (1 - b2) g^2;
then w <- w - rate / (1 - b1^t) m / (sqrt(v / (1 - b2^t)) + eps), t counted from 1.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]

FIRST, SECOND = 0.9, 0.99
"""By which the moments decay."""
_DECAY, _SMALL, _CLIP = 0.0, 1e-8, 1.0
_APART = float(np.finfo(np.float32).eps)
"""What float32 can tell apart, as a share: weights, gradients and moments are float32 on every device."""
_ROUNDINGS = 4
"""Roundings, of half of that, of a value that is made of two products; twice as many as there are."""
_TINY = 1e-37
"""Below this a device may take a float32 for zero."""


class State(NamedTuple):
    """Some coordinates of the model."""

    weights: Numbers
    first: Numbers
    second: Numbers


class Step(NamedTuple):
    """What a step makes of a state, and how far each number may be off."""

    made: State
    off: State


def step(before: State, gradient: Numbers, norm: float, rate: float, count: int) -> Step:
    """Take a step.

    Args:
        before: the state before it.
        gradient: there, not clipped.
        norm: of the whole gradient.
        rate: learning rate.
        count: steps before it.
    """
    slope = gradient * (_CLIP / norm) if norm > _CLIP else gradient
    rounding = _ROUNDINGS * _APART
    first = FIRST * before.first + (1 - FIRST) * slope
    first_off = rounding * (FIRST * np.abs(before.first) + (1 - FIRST) * np.abs(slope)) + _TINY
    second = SECOND * before.second + (1 - SECOND) * slope ** 2
    second_off = rounding * second + _TINY
    bias, second_bias = 1 - FIRST ** (count + 1), 1 - SECOND ** (count + 1)
    length = np.sqrt(second / second_bias) + _SMALL
    change = rate / bias * first / length
    weights = before.weights * (1 - rate * _DECAY) - change
    # The powers are rounded, too, where they are near one; a moment's own error is carried on.
    relative = 2 * rounding + _APART * (1 / bias + 1 / second_bias)
    off = np.abs(change) * relative + rate / bias * first_off / length + _APART * (np.abs(weights) + np.abs(change))
    return Step(State(weights, first, second), State(off, first_off, second_off))


def least_second(before: Numbers, steps: int) -> Numbers:
    """Return the least that second moments can be so many steps later: they fall by nothing but their decay."""
    return before * SECOND ** steps * (1 - _ROUNDINGS * _APART * (steps + 1)) - _TINY
