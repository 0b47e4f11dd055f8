"""How many of some nodes are away at once, and how many spares that asks for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from diloco_chaos.harness.failures.course import Course
from diloco_chaos.harness.failures.lengths import Floats
from diloco_chaos.harness.failures.source import Source

_ROUNDS = 20
_INTERVAL = (0.025, 0.975)


def away_shares(course: Course) -> Floats:
    """Return the share of the time of a course in which n nodes are away at once, for n from 0 on."""
    at_first = int((~course.at_first).sum())
    away = np.concatenate([[at_first], at_first - np.cumsum(course.steps, dtype=np.int64)])
    lasts = np.diff(np.concatenate([[0.0], course.times, [course.horizon]]))
    return np.bincount(away, lasts).astype(np.float64) / course.horizon


def together(shares: Sequence[Floats]) -> Floats:
    """Return the mean of several of these."""
    longest = max(map(len, shares))
    mean: Floats = np.mean([np.pad(each, (0, longest - len(each))) for each in shares], axis=0)
    return mean


def beyond(shares: Floats, count: int) -> float:
    """Share of the time in which more than `count` nodes are away."""
    return float(shares[count + 1:].sum())


def at_most_away(shares: Floats, share: float) -> int:
    """Return how many nodes at most are away in this share of the time."""
    return min(int(np.searchsorted(np.cumsum(shares), share - 1e-12)), len(shares) - 1)


class Spares(NamedTuple):
    """How many nodes beside those of a job it takes for it to have its nodes nearly always."""

    needed: int
    low: int
    """95 of 100 replications, each alone, ask for between this"""
    high: int
    """and this."""


def spares(source: Source, nodes: int, share: float, horizon: float, replications: int, seed: int) -> Spares:
    """Return how many spare nodes a job of `nodes` needs to have as many for this share of the time.

    Spares fail, too: the number is the least n such that of `nodes + n` at most n are away for that share of all
    replications of `horizon` seconds; the interval is of the numbers that single replications ask for.
    """
    count = 0
    for _ in range(_ROUNDS):
        each = [away_shares(source.course(nodes + count, horizon, seed + number)) for number in range(replications)]
        wanted = at_most_away(together(each), share)
        if wanted <= count:
            break
        count = wanted
    single = [at_most_away(shares, share) for shares in each]
    low, high = np.quantile(single, _INTERVAL, method="inverted_cdf")
    return Spares(count, int(low), int(high))
