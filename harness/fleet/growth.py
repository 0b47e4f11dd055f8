"""A group that takes back together the slices that return within some time of each other."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from diloco_chaos.harness.failures.lengths import Floats
from diloco_chaos.harness.fleet.chain import followed

Steps = NDArray[np.int32]
_JUST_BEYOND = 1 + np.finfo(np.float64).eps
"""So many times a moment is the next moment that there is: what comes at the moment itself is before it."""


class Changes(NamedTuple):
    """When slices of a group are lost and back, seconds."""

    lost: Floats
    """Ascending, of shape (losses,)."""
    back: Floats
    """Ascending, of shape (returns,)."""
    again: Floats
    """When those that are back are lost again, of the same shape."""


def taken_together(changes: Changes, within: float, horizon: float) -> tuple[Floats, Steps]:
    """Return the times, ascending, and steps (-1: one is lost; above 0: so many are back) that the group sees: whatever
    returns within so many seconds of a first slice is back at their end, all at once. A slice that is lost again by
    then was never back. Up to `horizon` seconds."""
    lost, back, again = changes
    if not within or not len(back):
        return _merged(lost, back, np.ones(len(back), np.int32))
    firsts = followed(back, (back + within) * _JUST_BEYOND)
    taken, sizes = np.minimum(back[firsts] + within, horizon), np.diff(firsts, append=len(back))
    never = np.flatnonzero(again < np.repeat(taken, sizes))
    sizes -= np.bincount(np.searchsorted(firsts, never, side="right") - 1, minlength=len(firsts))
    grown = np.flatnonzero((sizes > 0) & (taken < horizon))
    return _merged(_without(lost, again[never]), taken[grown], sizes[grown])


def _without(lost: Floats, times: Floats) -> Floats:
    """Return the losses but for one at each of these times."""
    ranks = np.arange(len(times))
    places = np.searchsorted(lost, np.sort(times))
    kept = np.ones(len(lost), np.bool_)
    kept[np.maximum.accumulate(places - ranks) + ranks] = False  # of several at one time as many as are asked for
    return lost[kept]


def _merged(lost: Floats, back: Floats, sizes: NDArray[np.integer]) -> tuple[Floats, Steps]:
    """Return times and steps of all losses and returns, by time; what is lost at the same moment comes first."""
    places = np.searchsorted(lost, back, side="right") + np.arange(len(back))
    losing = np.ones(len(lost) + len(back), np.bool_)
    losing[places] = False
    times, steps = np.empty(len(losing)), np.full(len(losing), -1, np.int32)
    times[losing], times[places], steps[places] = lost, back, sizes
    return times, steps
