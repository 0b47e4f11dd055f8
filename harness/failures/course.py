"""When slices are away: each is in service and away in turn, whatever the job does."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from diloco_chaos.harness.failures.lengths import Floats, Lengths

Indices = NDArray[np.intp]


class Course(NamedTuple):
    """The course of some slices, up to the horizon: when one is lost, and when one is back."""

    times: Floats
    """Seconds, ascending, of shape (events,)."""
    steps: NDArray[np.int8]
    """-1: lost, 1: back. Where who is lost is replaced at once nobody is back."""
    slices: Indices
    again: Floats
    """Of a slice that is back: when it is lost again, seconds."""
    at_first: NDArray[np.bool_]
    """Which slices are there at the beginning, of shape (slices,)."""
    horizon: float
    """Seconds up to which it is known."""

    def outages(self) -> list[tuple[int, float, float]]:
        """Return which slice is away from when to when, of all that begin in the course, by their beginnings; whoever
        is not back by the horizon is away until then."""
        order = np.lexsort((self.times, self.slices))
        times, steps, slices = self.times[order], self.steps[order], self.slices[order]
        ends = np.append(np.where(np.diff(slices) == 0, times[1:], self.horizon), self.horizon)[:len(times)]
        lost = np.flatnonzero(steps < 0)
        lost = lost[np.argsort(times[lost], kind="stable")]
        return list(zip(slices[lost].tolist(), times[lost].tolist(), ends[lost].tolist(), strict=True))


def drawn_course(slices: int, in_service: Lengths, away: Lengths, horizon: float, seed: int) -> Course:
    """Return the course of a fleet that has been in service for long, up to `horizon` seconds, whose slices fail
    independently of each other.

    `in_service`, `away`: for how long a slice is, each time. Work and memory grow with the number of events.
    """
    chance = np.random.default_rng([seed, 0])
    gone = chance.random(slices) >= in_service.mean_s / (in_service.mean_s + away.mean_s)
    back = away.left(slices, chance) * gone
    first = np.where(gone, back + in_service.whole(slices, chance), in_service.left(slices, chance))
    return in_turn(gone, back, first, lambda at, _: at + in_service.whole(len(at), chance), away, horizon, chance)


def in_turn(gone: NDArray[np.bool_], back: Floats, first: Floats, lost_after: Callable[[Floats, Indices], Floats],
            away: Lengths, horizon: float, chance: np.random.Generator) -> Course:
    """Return the course of slices up to `horizon` seconds, round by round: all that were lost are away, and then in
    service.

    Args:
        gone: which slices are away at the beginning, of shape (slices,).
        back: when those are back, seconds, of the same shape.
        first: when each is lost first, seconds, of the same shape.
        lost_after: of the times at which some slices are back, and these slices: when each is lost next.
        away: for how long a slice is, each time.
        horizon: seconds.
        chance: draws how long they are away.
    """
    at, losing = first, np.arange(len(gone))
    lost, returned, whose, again = [], [], [], []
    while len(losing := losing[within := at < horizon]):
        until = at[within] + away.whole(len(losing), chance)
        lost.append(at[within])
        returned.append(until)
        whose.append(losing)
        at = lost_after(until, losing)
        again.append(at)
    losers = np.concatenate([np.zeros(0, np.intp), *whose])
    losses, returns, later = (np.concatenate([np.zeros(0), *times]) for times in (lost, returned, again))
    if not away.mean_s:
        return _ordered(losses, losers, gone, horizon)
    return _ordered(losses, losers, gone, horizon, np.concatenate([returns, back[gone]]),
                    np.concatenate([losers, np.flatnonzero(gone)]), np.concatenate([later, first[gone]]))


def course_of(whose: Indices, starts: Floats, ends: Floats, slices: int, horizon: float) -> Course:
    """Return the course that outages make: of the slice `whose[i]` from `starts[i]` to `ends[i]` seconds, ascending by
    slice and then by start, without overlaps. One that begins before 0 is on at first."""
    again = np.append(np.where(np.diff(whose) == 0, starts[1:], np.inf), np.inf)[:len(whose)]
    later = starts >= 0
    gone = np.zeros(slices, np.bool_)
    gone[whose[~later & (ends > 0)]] = True
    seen = ends > 0
    return _ordered(starts[later], whose[later], gone, horizon, ends[seen], whose[seen], again[seen])


def _ordered(losses: Floats, losers: Indices, gone: NDArray[np.bool_], horizon: float, returns: Floats | None = None,
             who: Indices | None = None, again: Floats | None = None) -> Course:
    """Return the losses and returns before the horizon by time."""
    times, slices, later = losses, losers, losses
    if returns is not None and who is not None and again is not None:
        times, later = np.concatenate([losses, returns]), np.concatenate([losses, again])
        slices = np.concatenate([losers, who])
    steps = np.ones(len(times), np.int8)
    steps[:len(losses)] = -1
    order = np.argsort(times)  # by vectors, where the processor can, but not stable
    by_time = times[order]
    if (by_time[1:] == by_time[:-1]).any():
        order = np.argsort(times, kind="stable")  # of equal times the first stays first
    until = np.searchsorted(by_time, horizon)
    order = order[:until]
    return Course(by_time[:until], steps[order], slices[order], later[order], ~gone, horizon)
