"""When slices are away: each is in service and away in turn, independently of all others and of what the job does."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from diloco_chaos.harness.fleet.lengths import Floats, Lengths


class Course(NamedTuple):
    """The course of some slices, up to the horizon: when one is lost, and when one is back."""

    times: Floats
    """Seconds, ascending, of shape (events,)."""
    steps: NDArray[np.int8]
    """-1: lost, 1: back. Where who is lost is replaced at once nobody is back."""
    slices: NDArray[np.intp]
    again: Floats
    """Of a slice that is back: when it is lost again, seconds."""
    at_first: NDArray[np.bool_]
    """Which slices are there at the beginning, of shape (slices,)."""


def drawn_course(slices: int, in_service: Lengths, away: Lengths, horizon: float, seed: int) -> Course:
    """Return the course of a fleet that has been in service for long, up to `horizon` seconds.

    `in_service`, `away`: for how long a slice is, each time. Work and memory grow with the number of events.
    """
    chance = np.random.default_rng([seed, 0])
    gone = chance.random(slices) >= in_service.mean_s / (in_service.mean_s + away.mean_s)
    back = away.left(slices, chance) * gone
    at = first = np.where(gone, back + in_service.whole(slices, chance), in_service.left(slices, chance))
    losing = np.arange(slices)
    lost, returned, whose, again = [], [], [], []
    while len(losing := losing[within := at < horizon]):
        until = at[within] + away.whole(len(losing), chance)
        lost.append(at[within])
        returned.append(until)
        whose.append(losing)
        at = until + in_service.whole(len(losing), chance)
        again.append(at)
    losers = np.concatenate([np.zeros(0, np.intp), *whose])
    losses, returns, later = (np.concatenate([np.zeros(0), *times]) for times in (lost, returned, again))
    if away.mean_s:
        times = np.concatenate([losses, returns, back[gone]])
        slices_of = np.concatenate([losers, losers, np.flatnonzero(gone)])
        later = np.concatenate([losses, later, first[gone]])
    else:
        times, slices_of, later = losses, losers, losses
    steps = np.ones(len(times), np.int8)
    steps[:len(losses)] = -1
    order = _by_time(times, horizon)
    return Course(times[order], steps[order], slices_of[order], later[order], ~gone)


def _by_time(times: Floats, horizon: float) -> NDArray[np.intp]:
    """Return the indices of the times before the horizon, by time. Small integers are sorted by radix, and what is
    nearly sorted is sorted quickly: together that takes half as long as one sort."""
    places = np.flatnonzero(times < horizon)
    roughly = places[np.argsort((times[places] * (65_535 / horizon)).astype(np.uint16), kind="stable")]
    return roughly[np.argsort(times[roughly], kind="stable")]

