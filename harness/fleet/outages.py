"""When slices are away: each is in service and away in turn, independently of all others and of what the job does."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


class Course(NamedTuple):
    """The course of some slices, up to the horizon: when one is lost, and when one is back."""

    times: Floats
    """Seconds, ascending, of shape (events,)."""
    steps: NDArray[np.int8]
    """-1: lost, 1: back. Where who is lost is replaced at once nobody is back."""
    slices: NDArray[np.intp]
    at_first: NDArray[np.bool_]
    """Which slices are there at the beginning, of shape (slices,)."""


def drawn_course(slices: int, in_service_s: float, away_s: float, shape: float, horizon: float, seed: int) -> Course:
    """Return the course of a fleet that has been in service for long, up to `horizon` seconds.

    `in_service_s`, `away_s`: mean seconds, the first of a Weibull distribution of that shape, the second of an
    exponential one. Work and memory grow with the number of events.
    """
    chance, life = np.random.default_rng([seed, 0]), _Life(in_service_s, shape)
    away = chance.random(slices) >= in_service_s / (in_service_s + away_s)
    back = chance.exponential(away_s, slices) * away
    at = np.where(away, back + life.whole(slices, chance), life.left(slices, chance))
    losing = np.arange(slices)
    lost, returned, whose = [], [], []
    while len(losing := losing[within := at < horizon]):
        until = at[within] + chance.exponential(away_s, len(losing))
        lost.append(at[within])
        returned.append(until)
        whose.append(losing)
        at = until + life.whole(len(losing), chance)
    losers = np.concatenate([np.zeros(0, np.intp), *whose])
    losses, returns = (np.concatenate([np.zeros(0), *times]) for times in (lost, returned))
    if away_s:
        times = np.concatenate([losses, returns, back[away]])
        slices_of = np.concatenate([losers, losers, np.flatnonzero(away)])
    else:
        times, slices_of = losses, losers
    steps = np.ones(len(times), np.int8)
    steps[:len(losses)] = -1
    order = _by_time(times, horizon)
    return Course(times[order], steps[order], slices_of[order], ~away)


def _by_time(times: Floats, horizon: float) -> NDArray[np.intp]:
    """Return the indices of the times before the horizon, by time. Small integers are sorted by radix, and what is
    nearly sorted is sorted quickly: together that takes half as long as one sort."""
    places = np.flatnonzero(times < horizon)
    roughly = places[np.argsort((times[places] * (65_535 / horizon)).astype(np.uint16), kind="stable")]
    return roughly[np.argsort(times[roughly], kind="stable")]


class _Life:
    """The time for which a slice is in service."""

    def __init__(self, mean_s: float, shape: float) -> None:
        self._mean, self._shape, self._scale = mean_s, shape, mean_s / math.gamma(1 + 1 / shape)

    def whole(self, size: int, chance: np.random.Generator) -> Floats:
        """Draw times in seconds, from when a slice was put in service on; of shape (size,)."""
        if self._shape == 1:
            return chance.exponential(self._mean, size)
        return self._scale * chance.weibull(self._shape, size)

    def left(self, size: int, chance: np.random.Generator) -> Floats:
        """Draw times in seconds, of shape (size,), from any moment in service on (the stationary renewal process): a
        part, uniform, of a time that is drawn in proportion to its length. Of a Weibull variable x drawn so, x^shape is
        a gamma variable."""
        if self._shape == 1:
            return chance.exponential(self._mean, size)
        lengths = chance.standard_gamma(1 + 1 / self._shape, size) ** (1 / self._shape)
        return chance.random(size) * self._scale * lengths
