"""Merging the learners' outer gradients of one fragment (arXiv 2604.21428, token-weighted merging)."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from diloco_chaos.harness.base.tensors import Array, Tensors

_TINY = 1e-12
_PIECE = 1 << 16
"""Values that are worked on at a time."""
_ROW = 1 << 10
"""Values whose squares are added up before they meet others."""
_SMALLEST, _LARGEST = 1e-12, 1e15
"""Norms for which float32 holds the squares, and the factors to unit length."""
_SHORT = 0.1
"""A mean direction that is shorter draws out float32's rounding errors too far: all is done in float64."""
Values = npt.NDArray[np.floating[Any]]
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
    merged = _room(gradients[0])
    for name, into in merged.items():
        (average if method == "average" or name in averaged else radial_directional)(
            [gradient[name] for gradient in gradients], shares, into)
    return merged


def average(arrays: Sequence[Array], shares: Shares, into: Values) -> None:
    """sum_m share_m v_m, shares adding up to one."""
    _sum(arrays, shares, into)


def radial_directional(arrays: Sequence[Array], shares: Shares, into: Array) -> None:
    """Mean norm times the direction of the mean direction: averaging does not shrink what points apart.

    (sum share |v|) * phi(sum share phi(v)), phi(x) = x / |x|, phi(0) = 0. Where the mean direction vanishes (norm under
    1e-12) the weighted average is taken.
    """
    norms = list(map(_norm, arrays))
    plain = all(_SMALLEST <= norm <= _LARGEST for norm in norms)
    length = _direct(arrays, shares, norms, into) if plain else 0.0
    if length < _SHORT:
        norms = [_norm(array.astype(np.float64)) for array in arrays]
        exact = np.empty(into.shape, np.float64)
        length = _direct(arrays, shares, norms, exact)
        into[...] = exact
    if length < _TINY:
        average(arrays, shares, into)
    else:
        into *= np.float32(float(np.dot(shares, norms)) / length)


def _direct(arrays: Sequence[Array], shares: Shares, norms: Iterable[float], into: Values) -> float:
    """Put the mean direction there, and return its length."""
    _sum(arrays, [share / norm if norm else 0.0 for share, norm in zip(shares, norms, strict=True)], into)
    return _norm(into)


def _room(tensors: Tensors) -> Tensors:
    """Return float32 arrays of the same names and shapes, uninitialized, in one piece: a system gives huge pages to a
    large one, and half of the time of a merge went into small ones."""
    space = np.empty(sum(array.size for array in tensors.values()), np.float32)
    merged, begin = {}, 0
    for name, array in tensors.items():
        merged[name] = space[begin:begin + array.size].reshape(array.shape)
        begin += array.size
    return merged


def _sum(arrays: Sequence[Array], factors: Iterable[float], into: Values) -> None:
    """Put sum_m factor_m v_m there, in its precision; piece by piece, which stays in the processor's cache."""
    (first, its), *others = zip(map(_pieces, arrays), map(float, factors), strict=True)
    scaled = np.empty(_PIECE, into.dtype)
    for index, total in enumerate(_pieces(into)):
        np.multiply(first[index], its, out=total, dtype=into.dtype)
        for pieces, factor in others:
            total += np.multiply(pieces[index], factor, out=scaled[:total.size], dtype=into.dtype)


def _pieces(array: Values) -> list[Values]:
    """Views on it, one after the other."""
    flat = array.reshape(-1)
    return [flat[begin:begin + _PIECE] for begin in range(0, flat.size, _PIECE)]


def _norm(array: Values) -> float:
    """Euclidean norm: squares of a row are added up in the array's precision, rows in float64. By numpy itself: what a
    BLAS library adds up depends on its number of threads, and a merge must be the same in every process."""
    flat = array.reshape(-1)
    whole = flat.size - flat.size % _ROW
    squares = np.square(flat[whole:], dtype=np.float64).sum()
    if whole:
        rows = flat[:whole].reshape(-1, _ROW)
        squares += np.einsum("ij,ij->i", rows, rows).sum(dtype=np.float64)
    return math.sqrt(squares)
