"""Which pauses of a group come about: the first one, then the first that begins after its end, and so on."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from diloco_chaos.harness.failures.lengths import Floats

Indices = NDArray[np.intp]
_FEW = 4


def followed(begins: Floats, ends: Floats) -> Indices:
    """Return the places that a walk from place 0 meets, ascending: from each it goes on to the first place further on
    that doesn't begin before its end. `begins` ascend; both are of shape (places,).

    A place that begins when all before it have ended is met in any case. From one such place to the next is a stretch;
    all are walked at the same time, and the last few, which are long, one after the other.
    """
    met = np.ones(len(begins) + 1, np.bool_)  # the last one is the end
    met[1:-1] = np.maximum.accumulate(ends)[:-1] <= begins[1:]
    sure = np.flatnonzero(met)
    at = np.flatnonzero(met[:-1] & ~met[1:])
    while len(at) > _FEW:
        at = np.maximum(np.searchsorted(begins, ends[at]), at + 1)
        at = at[~met[at]]
        met[at] = True
    for start, stop in zip(at.tolist(), sure[np.searchsorted(sure, at, side="right")].tolist(), strict=True):
        met[_walked(begins[start:stop], ends[start:stop]) + start] = True
    return np.flatnonzero(met[:-1])


def _walked(begins: Floats, ends: Floats) -> Indices:
    following = np.maximum(np.searchsorted(begins, ends), np.arange(1, len(begins) + 1)).data
    places, at = [], 0
    while at < len(following):
        places.append(at)
        at = following[at]
    return np.array(places, np.intp)
