"""How sure a few runs are: intervals of a mean, of a difference between pairs of runs, and of rates. Pure.

Runs are few (3 to 10), and what they measure is skewed: the time since the last checkpoint, a count of rounds, a
heartbeat. Student's t at its usual quantile covers too seldom there (92% of the time, not 95%). So every interval is
Student's t with half of the chance left to it: 97.5% where the noise is normal, 95% and more where it is skewed.

- What is measured in steps (rounds, 20 ms) can be the same in all of few runs by chance. The spread is never taken for
  less than what rounding makes of it.
- Two ways are held against each other in pairs of the same plan and seed: what a seed does to both takes no part.
- A page of ten figures shows a difference by chance on four pages out of ten. `more_than_chance` allows for that: on
  95% of the pages without a difference it names none (S. Holm, Scand. J. Statist. 6, 1979).

What no interval of few runs can tell is an event that comes in one run out of five: it was not seen.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from statistics import fmean, variance
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

SURE = 0.95
_SKEW = 2
"""So many times the chance of Student's t is told, for noise that is not normal."""
_Z = 1.959964
_NUISANCE = np.linspace(0.005, 0.995, 199)
_EPSILON = 1e-9


class Estimate(NamedTuple):
    """A mean over a few runs, and between what it lies in 95% of all cases."""

    runs: int
    mean: float
    low: float | None
    """None: one value alone tells nothing of the others."""
    high: float | None


class Difference(NamedTuple):
    """What the second of two ways has more than the first, and how likely chance alone makes as much of it."""

    estimate: Estimate | None
    """Over the pairs in which both have a value; None: there are none."""
    chance: float
    """Probability (a p-value); 1 where nothing can be told."""
    missing: tuple[int, int]
    """In how many pairs each of the two has no value."""


def estimate(values: Sequence[float], resolution: float = 0.0) -> Estimate | None:
    """Return the mean with its interval; None where there is no value.

    Args:
        resolution: the step in which the values are measured.
    """
    if not values:
        return None
    mean, error = fmean(values), _error(values, resolution, 12)
    if error is None:
        return Estimate(len(values), mean, None, None)
    half = quantile(1 - (1 - SURE) / _SKEW, len(values) - 1) * error
    return Estimate(len(values), mean, mean - half, mean + half)


def difference(pairs: Sequence[tuple[float | None, float | None]], resolution: float = 0.0) -> Difference:
    """Return what the second of each pair has more than the first, with its interval over the pairs.

    Args:
        resolution: the step in which the values are measured.
    """
    missing = sum(first is None for first, _ in pairs), sum(second is None for _, second in pairs)
    more = [second - first for first, second in pairs if first is not None and second is not None]
    told = estimate(more, math.sqrt(2) * resolution)  # both are rounded
    error = _error(more, math.sqrt(2) * resolution, 12) if more else None
    if told is None or error is None:
        return Difference(told, 1.0, missing)
    if error == 0:
        return Difference(told, 0.0 if told.mean else 1.0, missing)
    return Difference(told, min(1.0, _SKEW * beyond(abs(told.mean) / error, len(more) - 1)), missing)


def difference_of_rates(first: tuple[int, int], second: tuple[int, int]) -> Difference:
    """Return how much more often something holds the second time, each as (how often, of how many).

    The interval is Newcombe's (Statist. Med. 17, 1998), the chance Barnard's (Biometrika 34, 1947): both are for runs
    that have nothing in common, and are on the safe side where they have the seed in common.
    """
    (held, of), (held_then, of_then) = first, second
    if not of or not of_then:
        return Difference(None, 1.0, (0, 0))
    before, after = held / of, held_then / of_then
    (low, high), (low_then, high_then) = wilson(held, of), wilson(held_then, of_then)
    more = after - before
    told = Estimate(min(of, of_then), more, more - math.hypot(after - low_then, high - before),
                    more + math.hypot(high_then - after, before - low))
    return Difference(told, _barnard(first, second), (0, 0))


def more_than_chance(chances: Sequence[float]) -> list[bool]:
    """Say of each difference of a page whether it is more than chance, as many as there are."""
    called = [False] * len(chances)
    for rank, index in enumerate(sorted(range(len(chances)), key=chances.__getitem__)):
        if chances[index] > (1 - SURE) / (len(chances) - rank):
            break
        called[index] = True
    return called


def wilson(passed: int, count: int) -> tuple[float, float]:
    """The 95% score interval of a rate (E. B. Wilson, J. Am. Stat. Assoc. 22, 1927)."""
    if count == 0:
        return 0.0, 1.0
    share, square = passed / count, _Z * _Z / count
    centre = (share + square / 2) / (1 + square)
    half = _Z / (1 + square) * math.sqrt(share * (1 - share) / count + square / (4 * count))
    return max(0.0, centre - half), min(1.0, centre + half)


def beyond(t: float, freedom: int) -> float:
    """Return how likely Student's t is at least that far from zero (Abramowitz and Stegun, 26.7.3 and 26.7.4)."""
    angle = math.atan2(t, math.sqrt(freedom))
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = freedom % 2
    term = cosine if odd else 1.0
    total = 0.0
    for power in range(2 + odd, freedom + 1, 2):
        total += term
        term *= cosine * cosine * (power - 1) / power
    within = 2 / math.pi * (angle + sine * total) if odd else sine * total
    return max(0.0, 1 - within)


@cache
def quantile(sure: float, freedom: int) -> float:
    """Return how far from zero Student's t is at most, with this probability."""
    low, high = 0.0, 1.0
    while beyond(high, freedom) > 1 - sure:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if beyond(middle, freedom) > 1 - sure else (low, middle)
    return high


def _error(values: Sequence[float], resolution: float, parts: int) -> float | None:
    """Return the standard error of the mean; None of one value."""
    if len(values) < 2:
        return None
    return math.sqrt((variance(values) + resolution ** 2 / parts) / len(values))


def _barnard(first: tuple[int, int], second: tuple[int, int]) -> float:
    """Return how likely rates differ by as much or more, at the worst common rate."""
    (held, of), (held_then, of_then) = first, second
    counts, counts_then = np.arange(of + 1), np.arange(of_then + 1)
    apart = np.abs(np.subtract.outer(counts / of, counts_then / of_then))
    pooled = np.add.outer(counts, counts_then) / (of + of_then)
    spread = np.sqrt(pooled * (1 - pooled) * (1 / of + 1 / of_then))
    score = np.divide(apart, spread, out=np.zeros_like(apart), where=spread > 0)
    extreme = score >= score[held, held_then] - _EPSILON
    likely = np.einsum("ri,ri->r", _binomial(of) @ extreme.astype(float), _binomial(of_then))
    return min(1.0, float(likely.max()))


def _binomial(runs: int) -> NDArray[np.float64]:
    """Return how likely each count is, a row for each common rate."""
    ways = np.array([math.lgamma(runs + 1) - math.lgamma(held + 1) - math.lgamma(runs - held + 1)
                     for held in range(runs + 1)])
    held, rates = np.arange(runs + 1), _NUISANCE[:, None]
    return np.asarray(np.exp(ways + held * np.log(rates) + (runs - held) * np.log1p(-rates)))
