"""What failures of a cluster are like, in the numbers by which a trace and what was fitted to it are compared."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from diloco_chaos.harness.failures.away import at_most_away, away_shares, beyond
from diloco_chaos.harness.failures.course import Course, Indices
from diloco_chaos.harness.failures.lengths import Floats
from diloco_chaos.harness.failures.trace import DAY_S, WEEK_S

_YEAR_S = 365.25 * DAY_S
_NEARLY_ALWAYS, _MANY = 0.99, 0.04


class Likeness(NamedTuple):
    """Numbers of one course. What there is nothing to tell of is not a number."""

    failures: float
    """Of a node in a year."""
    gap_variation: float
    """Of the times between failures of the cluster: standard deviation over mean; 1: exponential."""
    weekly: float
    """Variance over mean of the failures in a week; 1: Poisson."""
    worst_tenth: float
    """Share of the failures that the tenth of the nodes with the most has."""
    never: float
    """Share of the nodes that never fail."""
    soon: float
    """Share of repairs after which the node fails again within a week."""
    repair_median: float
    """Seconds."""
    repair_mean: float
    repair_90: float
    """Nine of ten repairs take no longer."""
    away: float
    """Nodes away at once, on average."""
    away_99: float
    """So many at most, in 99% of the time."""
    away_most: float
    away_many: float
    """Share of the time in which more than 4% of the nodes are away."""


def likeness(course: Course) -> Likeness:
    """Return what a course is like."""
    nodes, horizon = len(course.at_first), course.horizon
    lost = course.times[course.steps < 0]
    per_node = np.sort(np.bincount(course.slices[course.steps < 0], minlength=nodes))[::-1]
    gaps, weeks = np.diff(lost), max(1, int(horizon / WEEK_S))
    weekly = np.histogram(lost, weeks, (0.0, weeks * WEEK_S))[0]
    repairs, served, returns = _turns(course)
    shares = away_shares(course)
    return Likeness(
        failures=len(lost) / nodes / horizon * _YEAR_S, gap_variation=_over(gaps.std(), gaps.mean()) if len(gaps) else
        np.nan, weekly=_over(weekly.var(), weekly.mean()),
        worst_tenth=_over(per_node[:round(nodes / 10)].sum(), per_node.sum()), never=float((per_node == 0).mean()),
        soon=_over(float((served < WEEK_S).sum()), returns), **_quantiles(repairs),
        away=float((shares * np.arange(len(shares))).sum()),
        away_99=at_most_away(shares, _NEARLY_ALWAYS), away_most=len(shares) - 1,
        away_many=beyond(shares, int(_MANY * nodes)))


class Waits(NamedTuple):
    """Times of one course, seconds, each of shape (times,)."""

    repairs: Floats
    """Repairs that began and ended in it."""
    gaps: Floats
    """From a failure of the cluster to the next."""
    served: Floats
    """From the end of a repair to the next failure of the same node, where there was one."""


def waits(course: Course) -> Waits:
    """Return the times of a course whose quantiles tell processes apart."""
    repairs, served, _ = _turns(course)
    return Waits(repairs, np.diff(course.times[course.steps < 0]), served)


def _quantiles(repairs: Floats) -> dict[str, float]:
    if not len(repairs):
        return dict.fromkeys(("repair_median", "repair_mean", "repair_90"), np.nan)
    return {"repair_median": float(np.median(repairs)), "repair_mean": float(repairs.mean()),
            "repair_90": float(np.quantile(repairs, 0.9))}


def _turns(course: Course) -> tuple[Floats, Floats, int]:
    """Return how long the repairs took that began and ended in it, after how long the nodes failed again, and how many
    repairs ended."""
    order: Indices = np.lexsort((course.times, course.slices))
    times, steps, slices = course.times[order], course.steps[order], course.slices[order]
    follows = slices[1:] == slices[:-1]
    lasts = np.diff(times)
    return lasts[follows & (steps[:-1] < 0)], lasts[follows & (steps[:-1] > 0)], int((steps > 0).sum())


def _over(part: float, whole: float) -> float:
    return float(part / whole) if whole else float("nan")
