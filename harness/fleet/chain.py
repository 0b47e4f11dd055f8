"""Which pauses of a group come about: the first one, then the first that begins after its end, and so on."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.intp]
_BLOCK = 256
_FEW = 4096


def followed(following: Indices) -> Indices:
    """Return the places that a walk from place 0 meets, ascending. `following`: for each place the next one, which is
    further on; the walk ends at a next place of `len(following)` or more.

    Few places are walked one by one. More are cut into blocks, all of which are walked at the same time, each from its
    own beginning; then each block is put right from the place that the block before really led to. Two walks that meet
    stay together, and they soon meet.
    """
    if len(following) < _FEW:
        return _walked(following)
    count = len(following)
    starts = np.arange(0, count, _BLOCK)
    limits = np.append(starts[1:], count)
    met = np.zeros(count, np.bool_)
    at, walking = starts.copy(), np.arange(len(starts))
    while len(walking):
        here = at[walking]
        met[here] = True
        at[walking] = successors = following[here]
        walking = walking[successors < limits[walking]]
    _put_right(following, starts.tolist(), limits.tolist(), at.tolist(), met)
    return np.flatnonzero(met)


def _walked(following: Indices) -> Indices:
    places, at, after = [], 0, following.tolist()
    while at < len(after):
        places.append(at)
        at = after[at]
    return np.array(places, np.intp)


def _put_right(following: Indices, starts: list[int], limits: list[int], left_to: list[int], met: NDArray[np.bool_]
               ) -> None:
    """Put right each block, in turn: what was met up to where the walk from the true entry meets the other is not
    true."""
    entry = 0
    for start, limit, left in zip(starts, limits, left_to, strict=True):
        at, true = entry, []
        while at < limit and not met[at]:
            true.append(at)
            at = int(following[at])
        met[start:min(at, limit)] = False
        met[true] = True
        entry = left if at < limit else at
