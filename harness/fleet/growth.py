"""A group that takes back together the slices that return within some time of each other."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from diloco_chaos.harness.failures.lengths import Floats
from diloco_chaos.harness.fleet.chain import followed

Steps = NDArray[np.integer]


class Changes(NamedTuple):
    """The slices of a group that are lost and back, by time. All of shape (changes,)."""

    times: Floats
    """Seconds, ascending."""
    steps: Steps
    """-1: lost, 1: back."""
    again: Floats
    """Of one that is back: when it is lost again, seconds."""


def taken_together(changes: Changes, within: float, horizon: float) -> tuple[Floats, Steps]:
    """Return the times, ascending, and steps (-1: one is lost; above 0: so many are back) that the group sees: whatever
    returns within so many seconds of a first slice is back at their end, all at once. A slice that is lost again by
    then was never back. Up to `horizon` seconds."""
    times, steps, again = changes
    returns = np.flatnonzero(steps > 0)
    if not len(returns):
        return times, steps
    at = times[returns]
    firsts = followed(np.searchsorted(at, at + within, side="right"))
    taken = np.minimum(at[firsts] + within, horizon)
    batch = np.repeat(np.arange(len(firsts)), np.diff(firsts, append=len(at)))
    never = again[returns] < taken[batch]
    seen = steps < 0
    seen[np.searchsorted(times, again[returns[never]])] = False
    losses, sizes = np.flatnonzero(seen), np.bincount(batch[~never], minlength=len(firsts))
    grown = np.flatnonzero((sizes > 0) & (taken < horizon))
    when = np.concatenate([times[losses], taken[grown]])
    order = np.argsort(when, kind="stable")  # two parts in order: they are merged
    return when[order], np.concatenate([steps[losses], sizes[grown]])[order]
