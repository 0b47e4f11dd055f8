"""A fleet over some days, once: what became of its time."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache, reduce
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from diloco_chaos.harness.failures.lengths import Floats, Lengths
from diloco_chaos.harness.failures.source import Source
from diloco_chaos.harness.fleet.fleet import Fleet
from diloco_chaos.harness.fleet.group import Events, rules_of, trained
from diloco_chaos.harness.fleet.growth import Changes, Steps, taken_together

Intervals = tuple[Floats, Floats]
"""Beginnings and ends."""
STATES = ("useful", "slow", "shrinking", "growing", "checkpointing", "lost", "away")


class _Interruptions(NamedTuple):
    """When slices are lost and back, and which. Losses and returns ascend."""

    lost: Floats
    losers: NDArray[np.intp]
    back: Floats
    returning: NDArray[np.intp]
    again: Floats
    """When those that are back are lost again."""
    at_first: NDArray[np.bool_]
    """Which slices are there at the beginning, of shape (slices,)."""


@lru_cache(maxsize=2)  # for fleets that have the same ones
def _interruptions(failures: Source, slices: int, horizon: float, seed: int) -> _Interruptions:
    course = failures.course(slices, horizon, seed)
    lost, back = np.flatnonzero(course.steps < 0), np.flatnonzero(course.steps > 0)
    return _Interruptions(course.times[lost], course.slices[lost], course.times[back], course.slices[back],
                          course.again[back], course.at_first)


class ReplicationOutcome(BaseModel):
    """One replication, in shares of the fleet's time."""

    model_config = ConfigDict(frozen=True)

    goodput: float
    """Of all chips' time: useful training, as chips of nominal pace would have made it."""
    uptime: float
    """Of the time: so many learners as the quorum wants train; without learners: the job does."""
    capacity: float
    """Chips that are not away."""
    states: dict[str, float]
    """What became of the time of all chips."""
    interruptions: int


def simulate(fleet: Fleet, horizon: float, seed: int) -> ReplicationOutcome:
    """Simulate one replication of `horizon` seconds. What it costs grows with the number of interruptions. Fleets that
    differ only in how they handle an interruption have the same interruptions at the same seed."""
    slices = fleet.slices + ((fleet.spares or 0) if fleet.mode == "data_parallel" else 0)
    interruptions = _interruptions(fleet.failures, slices, horizon, seed)
    chance = np.random.default_rng([seed, 1])
    group_of = (np.arange(slices) * fleet.groups // slices).astype(np.min_scalar_type(fleet.groups))
    sizes, present = (np.bincount(group_of, weights, fleet.groups)
                      for weights in (None, interruptions.at_first))
    total, stood = dict.fromkeys(STATES, 0.0), []
    for group, changes in enumerate(_by_group(interruptions, group_of, fleet.groups)):
        size = fleet.slices if fleet.groups == 1 else int(sizes[group])
        chips = size * fleet.chips / fleet.slices
        rules = rules_of(fleet, size, _pace(fleet, chips, chance))
        times, steps = taken_together(changes, fleet.grow_within if rules.fixed is None else 0.0, horizon)
        events = _with_stragglers(fleet, chips, times, steps, horizon, chance)
        if fleet.restart_shape and rules.fixed is not None:
            events = events._replace(restarts=fleet.detection + Lengths(fleet.restart, fleet.restart_shape).whole(
                len(events.times), chance))
        done = trained(rules, size, int(present[group]), events, horizon)
        total = {name: before + getattr(done, name) for name, before in total.items()}
        stood.append(done.stood)
    states = {name: seconds / (fleet.slices * horizon) for name, seconds in total.items()}
    return ReplicationOutcome(goodput=states["useful"], uptime=_uptime(stood, fleet.groups, fleet.quorum, horizon),
                              capacity=1 - states["away"], states=states, interruptions=len(interruptions.lost))


def _by_group(interruptions: _Interruptions, group_of: NDArray[np.unsignedinteger], groups: int) -> Iterator[Changes]:
    """Yield what is lost and back in each group."""
    lost, losers, back, returning, again, _ = interruptions
    if groups == 1:
        yield Changes(lost, back, again)
        return
    losing, losses = _dealt_out(group_of[losers], groups)
    coming, returns = _dealt_out(group_of[returning], groups)
    lost, back, again = lost[losing], back[coming], again[coming]
    for (start, end), (first, last) in zip(pairwise(losses), pairwise(returns), strict=True):
        yield Changes(lost[start:end], back[first:last], again[first:last])


def _dealt_out(whose: NDArray[np.unsignedinteger], groups: int) -> tuple[NDArray[np.intp], list[int]]:
    """Return the places by group, in each as they were, and where each group begins, and the last one ends."""
    borders = np.cumsum(np.bincount(whose, minlength=groups))
    return np.argsort(whose, kind="stable"), [0, *borders.tolist()]  # small integers are sorted by radix


def _pace(fleet: Fleet, chips: float, chance: np.random.Generator) -> float:
    """Return the pace of the slowest of so many chips, as a share of the nominal pace, by the largest of n exponential
    variables, drawn by its distribution function."""
    if not fleet.spread:
        return 1.0
    return 1 / (1 - fleet.spread * math.log(-math.expm1(math.log(chance.random()) / chips)))


def _with_stragglers(fleet: Fleet, chips: float, times: Floats, steps: Steps, horizon: float,
                     chance: np.random.Generator) -> Events:
    """The events of a group, and beside them when one of its chips becomes a straggler, and ceases to be one."""
    if not fleet.straggler_mtbf:
        return Events(times, steps)
    a_second = chips / fleet.straggler_mtbf
    before, later = chance.poisson(a_second * np.array([fleet.straggler_for, horizon]))
    begins = np.concatenate([np.zeros(before), chance.random(later) * horizon])
    ends = begins + chance.exponential(fleet.straggler_for, len(begins))
    ends = ends[ends < horizon]
    whole = np.concatenate([times, begins, ends])
    order = np.argsort(whole, kind="stable")
    slower = np.repeat(np.array([0, 1, -1], np.int8), [len(times), len(begins), len(ends)])
    return Events(whole[order], np.concatenate([steps, np.zeros(len(whole) - len(times), steps.dtype)])[order],
                  slower[order])


def _uptime(stood: Sequence[Intervals], groups: int, quorum: int, horizon: float) -> float:
    """Share of the time in which so many groups train: the others, which are more than may, stand."""
    if quorum == 1:  # one of them will do: only where all stand the fleet is down
        begins, ends = reduce(_overlaps, stood)
        return 1 - float((ends - begins).sum()) / horizon
    begins, ends = (np.concatenate(each) for each in zip(*stood, strict=True))
    begins.sort(kind="stable")  # each group's are in order: timsort merges them
    ends.sort(kind="stable")
    too_many = groups - quorum + 1
    ranks = np.arange(1, len(begins) + 1)
    from_now = begins[ranks - np.searchsorted(ends, begins, side="right") == too_many]
    until = ends[np.searchsorted(begins, ends, side="right") - ranks == too_many - 1]
    return 1 - float(until.sum() - from_now.sum()) / horizon


def _overlaps(intervals: Intervals, other: Intervals) -> Intervals:
    """Return the overlaps of two lists of intervals; within each list, intervals are disjoint and ascending."""
    (begins, ends), (others, other_ends) = intervals, other
    first = np.searchsorted(other_ends, begins, side="right")
    some = np.flatnonzero(np.append(others, np.inf)[first] < ends)
    counts = np.searchsorted(others, ends[some]) - first[some]
    mine = np.repeat(some, counts)
    theirs = np.arange(len(mine)) + np.repeat(first[some] - np.cumsum(counts) + counts, counts)
    return np.maximum(begins[mine], others[theirs]), np.minimum(ends[mine], other_ends[theirs])
