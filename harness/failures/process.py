"""A process by which nodes fail as real ones do: some are worse than others, who was just repaired fails again soon,
several fail at once, and a few repairs take very long."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Annotated, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, model_validator

from diloco_chaos.harness.base.units import LongSeconds, Part, between, show_long
from diloco_chaos.harness.failures.course import Course, Indices, in_turn
from diloco_chaos.harness.failures.lengths import Floats, Lengths

_POPULATION = 4096
"""Nodes over which rates are averaged to find the one that leads to the mean time between failures asked for."""
_HALVINGS = 80
_LEAST_LEMONS = 0.01
_LEAST_RATE = 1e-200
"""Of the mean one: nobody lasts for ever."""


class FailureProcess(BaseModel):
    """Failures of nodes, in relation to each other. How often a node fails on average, and for how long it is then
    away, is said beside it."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    lemons: float = Field(0.0, ge=0, le=1000)
    """The shape of the gamma distribution of nodes' own rates, whose mean is 1: at 1 the worst tenth of nodes has a
    third of their failures, below it more. 0: all are alike."""
    relapse: Part = 0.0
    """The share of nodes that fail again soon after they are back."""
    relapse_within: Annotated[LongSeconds, between(0.001, 1e9, "1 ms or more")] = 86_400.0
    """For how long those are in service, on average."""
    relapse_shape: float = Field(1.0, ge=0.2, le=10)
    """Of the Weibull distribution of that time; 1: exponential. Below 1 many fail almost at once."""
    burst: Part = 0.0
    """The share of failures that come at the same moment as others."""
    burst_size: float = Field(2.0, ge=2, le=10_000)
    """So many nodes fail in such a burst on average: two, and others by a geometric distribution."""
    burst_of: Literal["any", "neighbours"] = "any"
    """Which: any nodes, or those that stand side by side, as in a rack: in a fleet they are of one learner."""
    waves: float = Field(0.0, ge=0, le=1000)
    """There are bad times and good ones for all nodes together: the shape of the gamma distribution, whose mean is 1,
    of the factor by which all rates change. 0: they stay."""
    wave_length: Annotated[LongSeconds, between(0.001, 1e9, "1 ms or more")] = 21 * 86_400.0
    """After so long the next factor is drawn."""
    repair_shape: float = Field(1.0, ge=0.1, le=10)
    """Of the Weibull distribution of repairs; 1: exponential. Below 1 a few take very long."""
    repair_sigma: float = Field(0.0, ge=0, le=5)
    """Above 0 repairs have a lognormal distribution instead: the standard deviation of their logarithm."""

    @model_validator(mode="after")
    def _possible(self) -> FailureProcess:
        if problems := list(self._problems()):
            raise ValueError("; ".join(problems))
        return self

    def _problems(self) -> Iterator[str]:
        if self.relapse + self.burst >= 1:
            yield (f"relapse {self.relapse:.0%} and burst {self.burst:.0%}: together they are less than 100%, for "
                   f"something must fail first")
        if 0 < self.lemons < _LEAST_LEMONS:
            yield f"lemons {self.lemons:g}: 0 (all are alike), or {_LEAST_LEMONS:g} and more"
        if self.repair_sigma and self.repair_shape != 1:
            yield "repair_shape and repair_sigma: repairs are Weibull or lognormal: leave one of them out"

    def repaired(self, mean_s: float) -> Lengths:
        """Return for how long a node is away, each time; `mean_s`: on average."""
        return Lengths(mean_s, self.repair_shape, sigma=self.repair_sigma) if mean_s else Lengths(0.0)

    def at_pace(self, times: float) -> FailureProcess:
        """Return the process of nodes that fail after so many times as long, those that fail again soon, too."""
        return self.model_copy(update={"relapse_within": max(0.001, self.relapse_within * times)})

    def impossible(self, in_service_s: float) -> str:
        """Return why nodes can't be in service for so many seconds on average; empty where they can."""
        try:
            _mean_rate(self, in_service_s)
        except ValueError as error:
            return str(error)
        return ""

    def course(self, nodes: int, in_service_s: float, away_s: float, horizon: float, seed: int) -> Course:
        """Return the course of nodes that have been in service for long, up to `horizon` seconds.

        Args:
            nodes: how many.
            in_service_s: mean seconds in service, over all times that a node is.
            away_s: mean seconds of a repair.
            horizon: seconds.
            seed: of all chance.

        Raises:
            ValueError: who relapses so late can't fail so often.
        """
        chance, away, hit_rate = np.random.default_rng([seed, 0]), self.repaired(away_s), self.burst / in_service_s
        rates = _own_rates(self, in_service_s, nodes, chance)
        waves = _Waves.drawn(self, horizon, chance)
        hits = _Hits.drawn(self, nodes, hit_rate, waves, chance)
        soon = self.relapse * self.relapsing_s(hit_rate)
        spans = soon + (1 - self.relapse) / (rates + hit_rate)
        gone = chance.random(nodes) * (spans + away_s) >= spans
        back = away.left(nodes, chance) * gone if away_s else np.zeros(nodes)

        def lost(at: Floats, whose: Indices, relapsing: NDArray[np.bool_], soon: Floats) -> Floats:
            own = waves.after(at, chance.exponential(1.0, len(at)) / rates[whose])
            own[relapsing] = at[relapsing] + soon
            return np.minimum(own, hits.after(at, whose))

        def lost_after(at: Floats, whose: Indices) -> Floats:
            relapsing = chance.random(len(at)) < self.relapse
            return lost(at, whose, relapsing, self.relapses.whole(int(relapsing.sum()), chance))
        relapsing, everybody = chance.random(nodes) * spans < soon, np.arange(nodes)
        first = np.where(gone, lost_after(back, everybody), lost(
            np.zeros(nodes), everybody, relapsing, self.relapses.left(int(relapsing.sum()), chance)))
        return in_turn(gone, back, first, lost_after, away, horizon, chance)

    @property
    def relapses(self) -> Lengths:
        """For how long a node that fails again soon is in service, if no burst hits it."""
        return Lengths(self.relapse_within, self.relapse_shape)

    def relapsing_s(self, hit_rate: float) -> float:
        """Mean seconds in service of a node that fails again soon, where bursts hit it at this rate, too."""
        return (1 - self.relapses.survives(hit_rate)) / hit_rate if hit_rate else self.relapse_within


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
    soon = process.relapse * process.relapsing_s(hit_rate)
    low, high = 0.0, 1e6 / in_service_s

    def fails(mean_rate: float) -> float:
        return float((1 / (soon + (1 - process.relapse) / (mean_rate * each + hit_rate + 1e-300))).mean())
    if fails(high) < 1 / in_service_s:
        raise ValueError(f"nodes that fail once in {show_long(in_service_s)}, and {process.relapse:.0%} of them again "
                         f"{show_long(process.relapse_within)} after they are back: make relapse_within shorter")
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
    def drawn(cls, process: FailureProcess, horizon: float, chance: np.random.Generator) -> _Waves:
        """The factors of a time that begins anywhere in a wave."""
        if not process.waves:
            return cls(np.array([0.0, horizon]), np.array([0.0, horizon]))
        first = chance.random() * process.wave_length
        borders = np.append(np.concatenate([[0.0], np.arange(first, horizon, process.wave_length)]), horizon)
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
