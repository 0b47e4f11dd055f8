"""Merging the learners' outer gradients of one fragment (arXiv 2604.21428, token-weighted merging)."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from harness.trainer.tensors import Array, Tensors

_TINY = 1e-12
_PIECE = 1 << 16
"""Values that are worked on at a time."""
Shares = Sequence[float] | npt.NDArray[np.float64]


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


def average(arrays: Sequence[Array], shares: Shares) -> Array:
    """sum_m share_m v_m, shares adding up to one."""
    return _combined(arrays, shares)[0]


def radial_directional(arrays: Sequence[Array], shares: Shares) -> Array:
    """Mean norm times the direction of the mean direction: averaging does not shrink what points apart.

    (sum share |v|) * phi(sum share phi(v)), phi(x) = x / |x|, phi(0) = 0. Where the mean direction vanishes (norm under
    1e-12) the weighted average is taken.
    """
    norms = [math.sqrt(sum(map(_squares, _pieces(array)))) for array in arrays]
    direction, length = _combined(arrays, [share / norm if norm else 0.0
                                           for share, norm in zip(shares, norms, strict=True)])
    if length < _TINY:
        return average(arrays, shares)
    direction *= np.float32(float(np.dot(shares, norms)) / length)
    return direction


def _combined(arrays: Sequence[Array], factors: Iterable[float]) -> tuple[Array, float]:
    """sum_m factor_m v_m, and its Euclidean norm. In float64 up to the result: a tiny norm makes a factor that is no
    float32, and what is added piece by piece stays in the processor's cache."""
    scaled = list(zip(map(_pieces, arrays), map(float, factors), strict=True))
    result = np.empty(arrays[0].shape, np.float32)
    squares = 0.0
    for index, piece in enumerate(_pieces(result)):
        total = np.zeros(piece.size)
        for pieces, factor in scaled:
            total += np.multiply(pieces[index], factor, dtype=np.float64)
        piece[...] = total
        squares += _squares(total)
    return result, math.sqrt(squares)


def _pieces(array: Array) -> list[Array]:
    """Views on it, one after the other."""
    flat = array.reshape(-1)
    return [flat[begin:begin + _PIECE] for begin in range(0, flat.size, _PIECE)]


def _squares(values: npt.NDArray[np.floating[Any]]) -> float:
    """Their sum; in float64, because squares of small float32 values vanish, and summed by numpy itself: what a BLAS
    library sums depends on its number of threads, and a merge must be the same in every process."""
    return float(np.square(values, dtype=np.float64).sum())
