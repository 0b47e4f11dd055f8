"""Merging the learners' outer gradients of one fragment (arXiv 2604.21428, token-weighted merging)."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

import numpy as np

from harness.trainer.tensors import Array, Tensors

_TINY = 1e-12


def token_weight(tokens: int, steps: int) -> float:
    """w = c_tokens * (c_tokens / c_steps): much data counts, and so does a large batch; 0 where there is no step."""
    return tokens * (tokens / steps) if steps else 0.0


def merge(gradients: Sequence[Tensors], weights: Sequence[float], method: str, averaged: Collection[str]) -> Tensors:
    """Merge outer gradients tensor by tensor, in float32, in the order given.

    Args:
        gradients: per contribution, name -> array; all of the same shapes.
        weights: one positive weight per contribution; only their ratios count.
        method: `rda` (radial-directional averaging) or `average`.
        averaged: names that are always averaged (embeddings).

    Raises:
        ValueError: nothing to merge, or a weight that is not positive.
    """
    if not gradients or any(weight <= 0 for weight in weights):
        raise ValueError("a merge needs contributions, each with a positive weight")
    shares = np.asarray(weights, np.float64) / np.sum(weights, dtype=np.float64)
    return {name: (average if method == "average" or name in averaged else radial_directional)(
        [gradient[name] for gradient in gradients], shares) for name in gradients[0]}


def average(arrays: Sequence[Array], shares: Array | np.ndarray[tuple[int], np.dtype[np.float64]]) -> Array:
    """sum_m share_m v_m, shares adding up to one."""
    total = np.zeros_like(arrays[0])
    for array, share in zip(arrays, shares, strict=True):
        total += np.float32(share) * array
    return total


def radial_directional(arrays: Sequence[Array],
                       shares: Array | np.ndarray[tuple[int], np.dtype[np.float64]]) -> Array:
    """Mean norm times the direction of the mean direction: averaging does not shrink what points apart.

    (sum share |v|) * phi(sum share phi(v)), phi(x) = x / |x|, phi(0) = 0. Where the mean direction vanishes (norm under
    1e-12) the weighted average is taken.
    """
    norms = [_norm(array) for array in arrays]
    directions = [(array / np.float64(norm)).astype(np.float32) if norm > 0 else array  # a tiny norm is no float32
                  for array, norm in zip(arrays, norms, strict=True)]
    direction = average(directions, shares)
    length = _norm(direction)
    if length < _TINY:
        return average(arrays, shares)
    radius = float(np.dot(shares, norms))
    return direction * np.float32(radius / length)


def _norm(array: Array) -> float:
    """Euclidean norm; in float64, because squares of small float32 values vanish, and summed by numpy itself: what a
    BLAS library sums depends on its number of threads, and a merge must be the same in every process."""
    return math.sqrt(np.square(array, dtype=np.float64).sum())
