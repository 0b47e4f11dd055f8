"""Draws the failures of a process: when which node is lost, and when it is back."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from diloco_chaos.harness.base.units import show_long
from diloco_chaos.harness.failures.course import Course, Indices, in_turn
from diloco_chaos.harness.failures.lengths import Floats, Lengths
from diloco_chaos.harness.failures.process import FailureProcess

_POPULATION = 4096
"""Nodes over which rates are averaged to find the one that leads to the mean time between failures asked for."""
_HALVINGS = 80
_LEAST_RATE = 1e-200
"""Of the mean one: nobody lasts for ever."""


def drawn_by(process: FailureProcess, nodes: int, in_service_s: float, away_s: float, horizon: float, seed: int
             ) -> Course:
    """Return the course of nodes that have been in service for long, up to `horizon` seconds.

    Args:
        process: by which they fail.
        nodes: how many.
        in_service_s: mean seconds in service, over all times that a node is.
        away_s: mean seconds of a repair.
        horizon: seconds.
        seed: of all chance.

    Raises:
        ValueError: who relapses so late can't fail so often.
    """
    chance, away, hit_rate = np.random.default_rng([seed, 0]), repairs(process, away_s), process.burst / in_service_s
    rates = _own_rates(process, in_service_s, nodes, chance)
    relapses = _relapses(process, in_service_s)
    waves = _Waves.drawn(process, process.wave_s(in_service_s), horizon, chance)
    hits = _Hits.drawn(process, nodes, hit_rate, waves, chance)
    soon = process.relapse * _relapsing_s(process, in_service_s)
    spans = soon + (1 - process.relapse) / (rates + hit_rate)
    gone = chance.random(nodes) * (spans + away_s) >= spans
    back = away.left(nodes, chance) * gone if away_s else np.zeros(nodes)

    def lost(at: Floats, whose: Indices, relapsing: NDArray[np.bool_], soon: Floats) -> Floats:
        own = waves.after(at, chance.exponential(1.0, len(at)) / rates[whose])
        own[relapsing] = at[relapsing] + soon
        return np.minimum(own, hits.after(at, whose))

    def lost_after(at: Floats, whose: Indices) -> Floats:
        relapsing = chance.random(len(at)) < process.relapse
        return lost(at, whose, relapsing, relapses.whole(int(relapsing.sum()), chance))
    relapsing, everybody = chance.random(nodes) * spans < soon, np.arange(nodes)
    first = np.where(gone, lost_after(back, everybody), lost(
        np.zeros(nodes), everybody, relapsing, relapses.left(int(relapsing.sum()), chance)))
    return in_turn(gone, back, first, lost_after, away, horizon, chance)


def impossible(process: FailureProcess, in_service_s: float) -> str:
    """Return why nodes can't be in service for so many seconds on average; empty where they can."""
    try:
        _mean_rate(process, in_service_s)
    except ValueError as error:
        return str(error)
    return ""


def repairs(process: FailureProcess, mean_s: float) -> Lengths:
    """Return for how long a node is away, each time; `mean_s`: on average."""
    return Lengths(mean_s, process.repair_shape, sigma=process.repair_sigma) if mean_s else Lengths(0.0)


def _relapses(process: FailureProcess, in_service_s: float) -> Lengths:
    """Return for how long a node that fails again soon is in service, if no burst hits it."""
    return Lengths(process.relapse_s(in_service_s), process.relapse_shape)


def _relapsing_s(process: FailureProcess, in_service_s: float) -> float:
    """Mean seconds in service of a node that fails again soon, which bursts hit, too."""
    relapses, hit_rate = _relapses(process, in_service_s), process.burst / in_service_s
    return (1 - relapses.survives(hit_rate)) / hit_rate if hit_rate else relapses.mean_s


def _own_rates(process: FailureProcess, in_service_s: float, nodes: int, chance: np.random.Generator) -> Floats:
    """Draw the rates of nodes' own failures, per second, of shape (nodes,)."""
    each = chance.standard_gamma(process.lemons, nodes) / process.lemons if process.lemons else np.ones(nodes)
    rates: Floats = np.maximum(each, _LEAST_RATE) * _mean_rate(process, in_service_s)
    return rates


@lru_cache(maxsize=64)
def _mean_rate(process: FailureProcess, in_service_s: float) -> float:
    """Return the mean own rate per second with which nodes are in service for so long on average.

    A node of rate a that is hit by bursts at rate h, and relapses with probability r, is in service for
    r w + (1 - r) / (a + h) seconds each time, with w the mean of what comes first of a relapse and a burst. Its
    failures per second in service are one over that, and their mean over the nodes is what is asked for.
    """
    lemons, hit_rate = process.lemons, process.burst / in_service_s
    each = np.random.default_rng(0).standard_gamma(lemons, _POPULATION) if lemons else np.ones(1)
    each /= each.mean()
    soon = process.relapse * _relapsing_s(process, in_service_s)
    low, high = 0.0, 1e6 / in_service_s

    def fails(mean_rate: float) -> float:
        return float((1 / (soon + (1 - process.relapse) / (mean_rate * each + hit_rate + 1e-300))).mean())
    if fails(high) < 1 / in_service_s:
        within = show_long(process.relapse_s(in_service_s))
        raise ValueError(f"nodes that fail once in {show_long(in_service_s)}, and {process.relapse:.0%} of them again "
                         f"{within} after they are back: make relapse_within shorter")
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if fails(middle) < 1 / in_service_s else (low, middle)
    return high


class _Waves(NamedTuple):
    """Time as failures see it: it goes faster in bad times."""

    borders: Floats
    """Seconds, from 0 to the horizon."""
    seen: Floats
    """The same as failures see them."""

    @classmethod
    def drawn(cls, process: FailureProcess, length_s: float, horizon: float, chance: np.random.Generator) -> _Waves:
        """The factors of a time that begins anywhere in a wave."""
        if not process.waves:
            return cls(np.array([0.0, horizon]), np.array([0.0, horizon]))
        first = chance.random() * length_s
        borders = np.append(np.concatenate([[0.0], np.arange(first, horizon, length_s)]), horizon)
        factors = chance.standard_gamma(process.waves, len(borders) - 1) / process.waves
        return cls(borders, np.concatenate([[0.0], np.cumsum(np.diff(borders) * factors)]))

    def after(self, at: Floats, lasts: Floats) -> Floats:
        """Return when so much time as failures see it has passed since `at`; infinite: not by the horizon."""
        seen = np.interp(at, self.borders, self.seen) + lasts
        return np.where((seen < self.seen[-1]) & (at < self.borders[-1]), np.interp(seen, self.seen, self.borders),
                        np.inf)

    def drawn_times(self, size: int, chance: np.random.Generator) -> Floats:
        """Draw times, of shape (size,), at which something happens that comes more often in bad times."""
        times: Floats = np.interp(chance.random(size) * self.seen[-1], self.seen, self.borders)
        return times


class _Hits(NamedTuple):
    """When bursts hit which node, ascending by node and then by time."""

    nodes: Indices
    times: Floats
    keys: Floats
    """Both in one number, by which they are found."""
    span: float
    """That one node has of these numbers."""

    @classmethod
    def drawn(cls, process: FailureProcess, nodes: int, rate: float, waves: _Waves, chance: np.random.Generator
              ) -> _Hits:
        """`rate`: per second of each node."""
        bursts = chance.poisson(nodes * rate * waves.seen[-1] / process.burst_size)
        sizes = 1 + chance.geometric(1 / (process.burst_size - 1), bursts)
        times = np.repeat(waves.drawn_times(bursts, chance), sizes)
        hit = chance.integers(nodes, size=len(times))
        if process.burst_of == "neighbours":
            begins = np.repeat(np.cumsum(sizes) - sizes, sizes)
            hit = (hit[begins] + np.arange(len(times)) - begins) % nodes
        span = 2 * float(waves.borders[-1])
        keys = hit * span + times
        order = np.argsort(keys, kind="stable")
        return cls(hit[order], times[order], keys[order], span)

    def after(self, at: Floats, whose: Indices) -> Floats:
        """Return when the next burst hits each of these nodes after these times; infinite: none does."""
        if not len(self.times):
            return np.full(len(at), np.inf)
        places = np.searchsorted(self.keys, whose * self.span + np.minimum(at, self.span / 2), side="right")
        found = np.minimum(places, len(self.times) - 1)
        return np.where((places < len(self.times)) & (self.nodes[found] == whose), self.times[found], np.inf)
