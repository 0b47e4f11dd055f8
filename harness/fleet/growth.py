"""A group that takes back together the slices that return within some time of each other."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from diloco_chaos.harness.fleet.chain import followed

Floats = NDArray[np.float64]
Signs = NDArray[np.int8]


class Changes(NamedTuple):
    """The slices of a group that are lost and back, by time. All of shape (changes,)."""

    times: Floats
    """Seconds, ascending."""
    steps: Signs
    """-1: lost, 1: back."""
    slices: NDArray[np.intp]


def taken_together(changes: Changes, within: float, horizon: float) -> Changes:
    """Return the same changes as the group sees them: whatever returns within so many seconds of a first slice is back
    at their end, all at once. A slice that is lost again by then was never back. Up to `horizon` seconds."""
    times, steps, slices = changes
    returns = np.flatnonzero(steps > 0)
    if not len(returns):
        return changes
    at = times[returns]
    firsts = at[followed(np.searchsorted(at, at + within, side="right"))]
    taken = times.copy()
    taken[returns] = firsts[np.searchsorted(firsts, at, side="right") - 1] + within
    kept = taken < horizon
    # small integers are sorted by radix
    by_slice = np.argsort(slices.astype(np.uint16) if slices.max() < 1 << 16 else slices, kind="stable")
    back, lost = by_slice[:-1], by_slice[1:]
    again = (slices[back] == slices[lost]) & (steps[back] > 0) & (taken[back] > times[lost])
    kept[back[again]] = kept[lost[again]] = False
    order = np.flatnonzero(kept)
    order = order[np.argsort(taken[order], kind="stable")]
    return Changes(taken[order], steps[order], slices[order])
