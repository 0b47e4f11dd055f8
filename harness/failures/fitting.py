"""A failure process whose failures are like those of a trace."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from diloco_chaos.harness.failures.course import Indices
from diloco_chaos.harness.failures.drawing import drawn_by
from diloco_chaos.harness.failures.lengths import Floats, Lengths
from diloco_chaos.harness.failures.process import FailureProcess
from diloco_chaos.harness.failures.trace import WEEK_S, Trace

TOGETHER_S, _NEXT = 360.0, 0.01
"""Failures that follow each other within so many seconds, and within that share of the mean time between two, are one
burst: more would come together by chance."""
SHORTEST_S = 60.0
"""A repair that is shorter counts as so long: logarithms of nothing would decide everything."""
_ROUNDS, _CUTS, _TERMS = 100, 40, 100
_LEAST_WEEKS = 8
_LEAST_OUTAGES = 20
_ALIKE, _MOST = 100, 0.95
"""A gamma shape beyond which nodes are alike; the most that relapses and bursts may be together."""
_YEARS = 24
"""Replications of the trace's time in which counts by the week are compared."""
_GOLDEN = (math.sqrt(5) - 1) / 2


class Fitted(NamedTuple):
    """What a trace was found to be like."""

    process: FailureProcess
    in_service_s: float
    """Mean seconds in service of a node, each time."""
    away_s: float
    """Mean seconds of a repair."""


def fitted(trace: Trace) -> Fitted:
    """Fit a process to a trace.

    - Mean times are the trace's own: time in service and time away, over the number of outages.
    - A burst is two or more failures of which each follows the one before at once (`TOGETHER_S`).
    - Times in service after a repair are a mixture of relapses and of each node's own rate, which has a gamma
      distribution over the nodes: expectation-maximization, with censored times.
    - Repairs are Weibull or lognormal, whichever is likelier, with the trace's mean.
    - Waves make up for what counts by the week vary more than all this explains, by simulated moments.

    Raises:
        ValueError: there is too little in it.
    """
    if len(trace.starts) < _LEAST_OUTAGES:
        raise ValueError(f"too few outages to fit a process to: {len(trace.starts)}, and {_LEAST_OUTAGES} are the "
                         f"least; replay it (--how replay)")
    away = trace.repairs
    in_service_s, away_s = means(trace)
    sizes = _burst_sizes(trace.starts)
    burst = min(_MOST, float(sizes[sizes > 1].sum()) / len(away))
    spells = _spells(trace)
    relapse, soon, lemons = _own(spells, trace.nodes)
    process = FailureProcess.model_validate({
        "lemons": lemons, "relapse": min(relapse, _MOST - burst), "relapse_within": f"{soon.mean_s!r}s",
        "relapse_shape": soon.shape, "burst": burst, "burst_size": float(sizes[sizes > 1].mean()) if burst else 2.0,
        **_repairs(np.maximum(away, SHORTEST_S))})
    found = Fitted(process, in_service_s, away_s)
    return found._replace(process=_with_waves(found, trace))


def means(trace: Trace) -> tuple[float, float]:
    """Return for how many seconds on average a node is in service, and then away."""
    away = float(trace.repairs.sum())
    return (trace.nodes * trace.length_s - away) / len(trace.starts), away / len(trace.starts)


class _Spells(NamedTuple):
    """Times in service, one after the other; of shape (spells,)."""

    nodes: Indices
    lasts: Floats
    """Seconds."""
    own: NDArray[np.bool_]
    """It ended by a failure of the node's own, neither by a burst nor by the end of the trace."""
    repaired: NDArray[np.bool_]
    """It began with a repair, and not with the trace."""


def _spells(trace: Trace) -> _Spells:
    """Return all times in service of all nodes, also of those that never failed."""
    order = np.lexsort((trace.starts, trace.whose))
    whose, starts, ends = trace.whose[order], trace.starts[order], np.minimum(trace.ends[order], trace.length_s)
    in_burst = _in_burst(trace.starts)[order]
    everybody = np.arange(trace.nodes)
    nodes = np.concatenate([everybody, whose])
    begins = np.concatenate([np.zeros(trace.nodes), ends])
    following = np.searchsorted(whose, nodes, side="left") + np.concatenate(
        [np.zeros(trace.nodes, np.intp), 1 + np.arange(len(whose)) - np.searchsorted(whose, whose, side="left")])
    there = np.minimum(following, len(whose) - 1)
    fails = (following < len(whose)) & (whose[there] == nodes)
    lasts = np.where(fails, starts[there], trace.length_s) - begins
    own = fails & ~in_burst[there]
    return _Spells(nodes, np.maximum(lasts, 1.0), own, np.arange(len(nodes)) >= trace.nodes)


def _own(spells: _Spells, nodes: int) -> tuple[float, Lengths, float]:
    """Return the share of repairs that a relapse follows, how long it takes to come, and the gamma shape of nodes' own
    rates (0: they are alike)."""
    relapse, scale, shape, lemons = 0.3, 86_400.0, 1.0, 1.0
    rate = spells.own.sum() / spells.lasts.sum() / 2
    soon = np.zeros(len(spells.lasts))
    for _ in range(_ROUNDS):
        count, time = (np.bincount(spells.nodes, (1 - soon) * each, nodes).astype(np.float64)
                       for each in (spells.own, spells.lasts))
        rate = max(1e-15, float(count.sum() / time.sum()))
        lemons = _gamma_shape(count, time, rate)
        rates = ((lemons + count) / (lemons / rate + time))[spells.nodes]
        part = (spells.lasts / scale) ** shape
        one = relapse * np.exp(-part) * np.where(spells.own, shape * part / spells.lasts, 1.0)
        other = (1 - relapse) * np.exp(-rates * spells.lasts) * np.where(spells.own, rates, 1.0)
        soon = spells.repaired * one / (one + other + 1e-300)
        relapse = float(soon.sum() / max(1, spells.repaired.sum()))
        scale, shape = _weibull(spells, soon)
    return relapse, Lengths(scale * math.gamma(1 + 1 / shape), shape), 0.0 if lemons > _ALIKE else lemons


def _weibull(spells: _Spells, weights: Floats) -> tuple[float, float]:
    """Return scale and shape that are likeliest for these times in service, each of which counts by its weight."""
    ended, logs = float((weights * spells.own).sum()) + 1e-9, np.log(spells.lasts)

    def scale(shape: float) -> float:
        return math.pow(((weights * spells.lasts ** shape).sum() + 1e-9) / ended, 1 / shape)

    def likely(shape: float) -> float:
        log_scale = math.log(scale(shape))
        return float((weights * spells.own * (math.log(shape / scale(shape)) + (shape - 1) * (logs - log_scale))).sum()
                     - ended)
    shape = _highest(likely, 0.3, 3.0)
    return scale(shape), shape


def _gamma_shape(count: Floats, time: Floats, rate: float) -> float:
    """Return the shape of the gamma distribution of rates, of that mean, that makes these counts in these times
    likeliest (negative binomial)."""
    def likely(log_shape: float) -> float:
        shape = math.exp(log_shape)
        return float(np.sum(_log_gamma(shape + count) - math.lgamma(shape) + shape * math.log(shape / rate)
                            - (shape + count) * np.log(shape / rate + time)))
    return math.exp(_highest(likely, math.log(0.02), math.log(200.0)))


def _log_gamma(values: Floats) -> Floats:
    return np.array([math.lgamma(value) for value in values.tolist()])


def _highest(of: Callable[[float], float], low: float, high: float) -> float:
    """Return where a function that rises and then falls is highest, by golden section."""
    left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
    at_left, at_right = of(left), of(right)
    for _ in range(_CUTS):
        if at_left > at_right:
            high, right, at_right = right, left, at_left
            left = high - _GOLDEN * (high - low)
            at_left = of(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + _GOLDEN * (high - low)
            at_right = of(right)
    return (low + high) / 2


def _repairs(away: Floats) -> dict[str, float]:
    """Return the family of repairs, and its parameter, that is likeliest at the mean that they have."""
    mean_s, logs = float(away.mean()), np.log(away)

    def weibull(shape: float) -> float:
        scale = mean_s / math.gamma(1 + 1 / shape)
        return float(len(away) * math.log(shape / scale) + (shape - 1) * (logs - math.log(scale)).sum()
                     - ((away / scale) ** shape).sum())

    def lognormal(sigma: float) -> float:
        off = logs - (math.log(mean_s) - sigma ** 2 / 2)
        return float(-len(away) * math.log(sigma * math.sqrt(2 * math.pi)) - logs.sum() - (off ** 2).sum()
                     / (2 * sigma ** 2))
    shape, sigma = _highest(weibull, 0.15, 8.0), _highest(lognormal, 0.05, 4.0)
    return {"repair_shape": shape} if weibull(shape) >= lognormal(sigma) else {"repair_sigma": sigma}


def _burst_sizes(starts: Floats) -> Indices:
    """Return how many failures each burst has, 1 where there is none; `starts`: ascending."""
    gaps = np.diff(starts)
    return np.diff(np.flatnonzero(np.concatenate([[True], gaps > min(TOGETHER_S, _NEXT * float(gaps.mean())), [True]])))


def _in_burst(starts: Floats) -> NDArray[np.bool_]:
    sizes = _burst_sizes(starts)
    return np.repeat(sizes > 1, sizes)


def _with_waves(found: Fitted, trace: Trace) -> FailureProcess:
    """Return the process with waves such that counts by the week vary as much as the trace's; where they explain
    nothing, without."""
    weeks = int(trace.length_s / WEEK_S)
    if weeks < _LEAST_WEEKS:
        return found.process
    varied, lag = _varied(trace.starts, weeks)
    length = WEEK_S / max(1 / 8, 1 - min(1.0, max(0.0, lag) / max(1e-9, 1 - 1 / varied))) if varied > 1 else WEEK_S

    def simulated(waves: float) -> float:
        process = found.process.model_copy(update={"waves": waves, "wave_length": float(max(length, WEEK_S))})
        courses = [drawn_by(process, trace.nodes, found.in_service_s, found.away_s, weeks * WEEK_S, seed)
                   for seed in range(_YEARS)]
        return float(np.mean([_varied(course.times[course.steps < 0], weeks)[0] for course in courses]))
    if simulated(0.0) >= varied:
        return found.process
    low, high = math.log(0.05), math.log(100.0)
    for _ in range(12):
        middle = (low + high) / 2
        low, high = (middle, high) if simulated(math.exp(middle)) > varied else (low, middle)
    if math.exp(high) > _ALIKE / 2:
        return found.process
    return found.process.model_copy(update={"waves": math.exp(high), "wave_length": float(max(length, WEEK_S))})


def _varied(starts: Floats, weeks: int) -> tuple[float, float]:
    """Return variance over mean of counts by the week, and how much a week is like the one before (correlation)."""
    counts = np.histogram(starts, weeks, (0.0, weeks * WEEK_S))[0]
    if not counts.any():
        return 1.0, 0.0
    around = counts - counts.mean()
    return float(counts.var() / counts.mean()), float((around[1:] * around[:-1]).sum() / max(1e-9, (around ** 2).sum()))


def distance(lasts: Floats, lengths: Lengths) -> tuple[float, float]:
    """Return the largest difference between the shares of these times and those of a distribution, and how probable so
    much would be if they had it (Kolmogorov's limit, with Stephens' correction for few). Where it was fitted to the
    same times that is too kind to it."""
    expected, count = lengths.cumulative(np.sort(lasts)), len(lasts)
    steps = np.arange(count + 1) / count
    most = float(max((expected - steps[:-1]).max(), (steps[1:] - expected).max()))
    scaled = (math.sqrt(count) + 0.12 + 0.11 / math.sqrt(count)) * most
    terms = (-1) ** np.arange(_TERMS) * np.exp(-2 * (np.arange(1, _TERMS + 1) * scaled) ** 2)
    return most, float(np.clip(2 * terms.sum(), 0.0, 1.0))
