"""One group of slices that train in step: what became of its time, from when slices were away and chips were slow.

An interruption, or a slice that is back, makes the group stand. What happens while it stands is taken along by the same
pause. So pauses follow from each other: the next one begins with the first event after the end of the last.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from diloco_chaos.harness.failures.lengths import Floats
from diloco_chaos.harness.fleet.chain import Indices, followed
from diloco_chaos.harness.fleet.fleet import Fleet
from diloco_chaos.harness.fleet.growth import Steps

Signs = NDArray[np.int8]


class GroupRules(NamedTuple):
    """The rules by which a group goes on."""

    needed: int
    """Slices without which it can't train."""
    fixed: int | None
    """Slices that it trains on, always so many; None: on all that are there."""
    after_loss: float
    """Seconds for which it stands when a slice is gone."""
    after_return: float
    """The same when one is back; 0: it does not stand."""
    again: float
    """Seconds until it trains, once it has as many as it needs again."""
    checkpoint_every: float
    """Seconds of work whose end must be reached, or it is done for nothing; 0: none is."""
    checkpoint_cost: float
    """Seconds for which it stands at each such end."""
    pace: float
    """Of its slowest chip, as a share."""
    straggler: float
    """By what that is multiplied while one of its chips is a straggler."""


def rules_of(fleet: Fleet, slices: int, pace: float) -> GroupRules:
    """`slices`: of this group."""
    if fleet.mode == "data_parallel":
        needed = 0 if fleet.spares is None else slices
        return GroupRules(needed, slices, fleet.detection + fleet.restart, 0.0, fleet.restart, fleet.checkpoint_every,
                          fleet.checkpoint_cost, pace, fleet.straggler_speed)
    return GroupRules(1, None, fleet.detection + fleet.shrink, fleet.grow, fleet.recovery, 0.0, 0.0, pace,
                      fleet.straggler_speed)


class Events(NamedTuple):
    """The events that happen to a group, by time. All of shape (events,)."""

    times: Floats
    """Seconds, ascending."""
    steps: Steps
    """-1 where a slice is lost, above 0 how many are back, else 0."""
    slower: Signs | None = None
    """1 where a chip becomes a straggler, -1 where it is none any more, else 0; None: there never is one."""
    restarts: Floats | None = None
    """Seconds for which the group stands if it is a loss, whatever the rules say, and a loss meanwhile makes it begin
    anew; None: as the rules say."""


@dataclass
class Accounts:
    """The uses of a group's time, in slice-seconds; together they are all slices times the horizon."""

    useful: float = 0.0
    """As chips of nominal pace would have needed."""
    slow: float = 0.0
    """Waiting for the slowest chip."""
    shrinking: float = 0.0
    """Standing because a slice was lost, and until a rigid job had begun again."""
    growing: float = 0.0
    """Standing because one was back."""
    checkpointing: float = 0.0
    lost: float = 0.0
    """Work that an interruption made void."""
    away: float = 0.0
    """Of slices that were being repaired."""
    stood: tuple[Floats, Floats] = field(default_factory=lambda: (np.zeros(0), np.zeros(0)))
    """When it stood: beginnings and ends, seconds, ascending."""


def trained(rules: GroupRules, slices: int, at_first: int, events: Events, horizon: float) -> Accounts:
    """Return the accounts of a group of `slices`, of which `at_first` are present at the start; `horizon`: seconds."""
    times = np.concatenate([[0.0], events.times, [horizon]])  # at the beginning it may have too few to train
    steps = np.concatenate([[0], events.steps, [0]])
    counts = at_first + np.cumsum(steps, dtype=np.float64)
    present = _Integral(times, counts if rules.fixed is None else np.full(len(times), float(rules.fixed)))
    restarts = None if events.restarts is None else np.concatenate([[0.0], events.restarts, [0.0]])
    pauses = _pauses(rules, times, steps, counts, restarts)
    begins, ends, lost = times[pauses.begins], pauses.ends, steps[pauses.begins] < 0
    stood = present.of(pauses)
    accounts = Accounts(stood=(begins, ends), shrinking=float(stood[lost].sum()), growing=float(stood[~lost].sum()))
    at_work = present.all - accounts.shrinking - accounts.growing
    accounts.away = slices * horizon - present.all
    if events.slower is None:
        nominal, made = present, at_work
    else:
        stragglers = np.cumsum(np.concatenate([[0], events.slower, [0]]), dtype=np.int64) > 0
        nominal = present.times(np.where(stragglers, rules.straggler, 1.0))
        made = nominal.all - float(nominal.of(pauses).sum())
    made *= rules.pace
    accounts.slow, accounts.useful = at_work - made, made
    if rules.checkpoint_every:
        _take_void(accounts, rules, nominal, begins, ends, horizon)
    return accounts


class _Pauses(NamedTuple):
    """The times at which a group stands, ascending."""

    begins: Indices
    """Events at which it stops."""
    ends: Floats
    """Until when it stands then, seconds."""
    last: Indices
    """The last events before these ends."""


class _Integral:
    """The integral of a function that is constant from each time to the next."""

    def __init__(self, times: Floats, heights: Floats) -> None:
        self._times, self._heights = times, heights
        self._sums = np.concatenate([[0.0], np.cumsum(heights[:-1] * np.diff(times))])
        self.all = float(self._sums[-1])

    def times(self, factors: Floats | float) -> _Integral:
        """Return the integral of the same function with all heights multiplied."""
        return _Integral(self._times, self._heights * factors)

    def of(self, pauses: _Pauses) -> Floats:
        """While it stands, each time."""
        before: Floats = self._sums[pauses.begins]
        return self._to(pauses.last, pauses.ends) - before

    def until(self, moments: Floats) -> Floats:
        """Up to any moments."""
        return self._to(np.searchsorted(self._times, moments, side="right") - 1, moments)

    def _to(self, index: Indices, moments: Floats) -> Floats:
        sums: Floats = self._sums[index] + self._heights[index] * (moments - self._times[index])
        return sums


def _pauses(rules: GroupRules, times: Floats, steps: Steps, counts: Floats, restarts: Floats | None) -> _Pauses:
    stopping = steps != 0 if rules.after_return else steps < 0
    stopping[0] = bool(rules.needed)  # at the beginning there may be too few
    stops = np.flatnonzero(stopping)
    begins = times[stops]
    if restarts is None:
        lengths = np.where(steps[stops] < 0, rules.after_loss, rules.after_return)
        lengths[:int(stopping[0])] = 0.0
    else:
        lengths = restarts[stops]
    ends = begins + lengths
    if rules.needed and (few := counts < rules.needed).any():
        ends = _with_enough(rules, times, few, ends)
    ends = np.minimum(ends, times[-1])
    if restarts is not None:  # each loss ends the pause before it, and begins another
        ends = np.minimum(ends, np.append(begins[1:], times[-1]))
    elif len(stops):
        chosen = followed(begins, ends)
        stops, begins, ends = stops[chosen], begins[chosen], ends[chosen]
    lasting = ends > begins
    stops, ends = stops[lasting], ends[lasting]
    last = stops.copy()
    more = np.flatnonzero(times[stops + 1] < ends)  # others happen meanwhile
    last[more] = np.searchsorted(times, ends[more]) - 1
    return _Pauses(stops, ends, last)


def _with_enough(rules: GroupRules, times: Floats, few: NDArray[np.bool_], ends: Floats) -> Floats:
    """Return the pauses' ends, put off until enough slices are present and the group has begun again."""
    horizon = times[-1]
    comes = np.flatnonzero(few[:-1] & ~few[1:]) + 1  # with these events there are enough again
    trains = np.append(times[comes] + rules.again, horizon)  # the last: the group never trains again
    never = len(comes)

    def awaited(moments: Floats) -> Indices:
        """Return the place in `trains` that a group waits for when it wants to train at these moments; -1: none."""
        at = np.searchsorted(times, moments, side="right") - 1
        return np.where(few[at] & (moments < horizon), np.searchsorted(comes, at, side="right"), -1)

    following = awaited(trains[:-1])
    resolved = np.append(np.where(following < 0, np.arange(never), following), never)
    while not np.array_equal(further := resolved[resolved], resolved):  # twice as far each time
        resolved = further
    waits_for = awaited(ends)
    return np.where(waits_for < 0, ends, trains[resolved[waits_for]])


def _take_void(accounts: Accounts, rules: GroupRules, nominal: _Integral, begins: Floats, ends: Floats,
               horizon: float) -> None:
    """Move from `useful` to `lost` what was made since the last checkpoint, and to `checkpointing` what checkpoints
    cost. What the last stretch has made is not lost: nothing ended it."""
    froms, tos = np.concatenate([[0.0], ends]), np.concatenate([begins, [horizon]])
    lasted, made = tos - froms, (nominal.until(tos) - nominal.until(froms)) * rules.pace
    each = rules.checkpoint_every + rules.checkpoint_cost
    whole = np.floor(lasted / each)
    whole[-1] = lasted[-1] / each
    a_second = np.divide(made, lasted, out=np.zeros_like(lasted), where=lasted > 0)
    accounts.useful = float((a_second * whole).sum()) * rules.checkpoint_every
    accounts.checkpointing = float((a_second * whole).sum()) * rules.checkpoint_cost
    accounts.lost = float(made.sum()) - accounts.useful - accounts.checkpointing
