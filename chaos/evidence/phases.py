"""The phases of a recovery: how long after a fault somebody noticed it, its target was left out, started again, ready,
and part of a round, the pace was what it was before, and the lost work was made good. Pure.

An event of the run ends each phase. Where there is none, the phase has no time and says why. Phases stand in the order
in which they ended, so that they add up to the whole.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from statistics import median
from typing import Literal

from diloco_chaos.chaos.evidence.accounting.token_accounting import CRASH, LEFT
from diloco_chaos.chaos.evidence.history import History, Span
from diloco_chaos.chaos.evidence.members import members
from diloco_chaos.faults.base import Fault
from diloco_chaos.harness.record.tape.events import (
    Disconnected,
    Hello,
    Lost,
    Noticed,
    Prepared,
    Ready,
    Resumed,
    Spawn,
    Step,
)

WINDOW_S = 2.0
"""Merge rate and contributors are measured over windows of this length."""
_AS_GOOD = 0.9
_LEAST_BEFORE_S = 1.0

NOTICED, EXCLUDED, RESTARTED, OVER, READY, FIRST_ROUND, PACE, MADE_GOOD = (
    "noticed", "excluded", "restarted", "over", "ready", "first round", "pace as before", "work made good")


@dataclass(frozen=True)
class Phase:
    """A phase of the recovery of one target."""

    name: str
    t: float | None = None
    """When it ended, in seconds since the run began; None: it did not, or nothing tells."""
    by: str = ""
    """Who shows that."""
    missing: str = ""
    """Where it has no time: why."""
    ending: Literal["never", "untold", "idle"] = "never"
    """Where it has no time: it did not end (`never`), nothing tells (`untold`), or there is nothing to end (`idle`)."""


@dataclass(frozen=True)
class Recovery:
    """What followed a fault, for one of its targets."""

    span: Span
    target: str
    phases: tuple[Phase, ...]
    """In the order in which they are named above."""
    lost_steps: int | None
    """Inner steps, or rounds, that the target had made and that came to nothing; None: not told."""
    before: int = 0
    """Number of the process that was hit."""
    successor: str = ""
    """The node that took its place; empty where it came back itself."""

    @property
    def passed(self) -> list[tuple[Phase, float, float]]:
        """Return the phases that ended, in that order, each with its end and the seconds since the one before ended:
        together they are the time from the injection to the last of them."""
        ended = sorted(((phase.t, phase) for phase in self.phases if phase.t is not None), key=lambda timed: timed[0])
        before = [self.span.began, *(t for t, _ in ended)]
        return [(phase, t, t - began) for began, (t, phase) in zip(before, ended, strict=False)]

    def after(self, *names: str) -> float | None:
        """Return how many seconds after the injection the first of these phases that has a time ended; None: none of
        them has."""
        ends = {phase.name: phase.t for phase in self.phases}
        t = next((end for end in map(ends.get, names) if end is not None), None)
        return None if t is None else t - self.span.began

    @property
    def to_detect(self) -> float | None:
        """Return the seconds until somebody noticed: MTTD is their mean."""
        return self.after(NOTICED, EXCLUDED)

    @property
    def to_recover(self) -> float | None:
        """Return the seconds until the pace was what it was before: MTTR is their mean."""
        return self.after(PACE)


def recoveries(history: History) -> list[Recovery]:
    """Return what followed each fault that took a node out, for each of its targets, in the order of the plan."""
    nodes = {*history.plan.cluster.names, *filter(None, [history.coordinator])}
    taken_out = [span for span in history.spans if span.injected is not None and takes_out(span.planned.fault)]
    return [_Reading(history, span, target).recovery() for span in taken_out for target in span.planned.fault.targets
            if target in nodes]


def takes_out(fault: Fault) -> bool:
    """Return whether nothing comes of its targets while it lasts."""
    return fault.stops_target or fault.halts_target or fault.cuts_off


def pulse(history: History, start: float, end: float) -> tuple[float, float]:
    """Return merges per second, and mean contributors per merge, between these times: no more than those say who report
    how many they were."""
    counts = [history.counts_between(left, right) for left, right in history.awake(start, end)]
    merges = sum(count for count, _ in counts)
    if not merges:
        return 0.0, 0.0
    contributors = sum(parts for _, parts in counts) / merges
    if history.coordinator is None:
        rounds = [merge for left, right in history.awake(start, end) for merge in history.merges_between(left, right)]
        if all(part.members for merge in rounds for part in merge.contributions):
            contributors = min(contributors, median(map(members, rounds)))
    return merges / history.seconds(start, end), contributors


class _Reading:
    """Reads one target's recovery from the event log."""

    def __init__(self, history: History, span: Span, target: str) -> None:
        self._history, self._span, self._target = history, span, target
        self._place = next(iter(span.planned.fault.joining()), target)  # who has part in rounds again
        self._hub = target == history.coordinator
        self._after = [merge for merge in history.merges_between(span.began, math.inf) if merge.t > span.began]
        self._before = history.tape.newest(target, span.began)
        self._spawn = self._started_again()

    def recovery(self) -> Recovery:
        """Return all of it."""
        noticed = self._noticed()
        back = self._back()
        first = self._first_round(back)
        lost = self._lost()
        phases = (noticed, self._excluded(first), back, self._ready(back), first, self._pace(first),
                  self._made_good(first, lost))
        in_time = (phase if phase.t is None else replace(phase, t=max(phase.t, self._span.began)) for phase in phases)
        return Recovery(self._span, self._target, tuple(in_time), lost, self._before,
                        self._place if self._place != self._target else "")

    def _started_again(self) -> Spawn | None:
        """Return the start of the process that took its place because of this fault; None: there was none."""
        fault = self._span.planned.fault
        until = self._history.end if fault.stops_target or fault.starts_process() else self._history.until(self._span)
        newest = self._before if self._place == self._target else -1
        return next((event for event in self._history.tape.of(Spawn, node="harness") if event.target == self._place
                     and self._span.began <= event.t <= until and event.incarnation > newest), None)

    def _anew(self) -> list[Step]:
        """Return the steps of the process that took its place."""
        number = self._spawn.incarnation if self._spawn is not None else self._before + 1
        return self._steps(self._place, number)

    def _noticed(self) -> Phase:
        """By the coordinator, which lost the target; or by whoever lost the coordinator. Of commands by the first line
        that the scenario's `noticed` finds: that they are lost is the harness' word, and proves nothing of them."""
        if self._history.coordinator is None:
            return self._noticed_in_a_log()
        since = self._span.began - self._history.clocks.tolerance
        missed: Iterable[Disconnected | Lost] = (
            (event for event in self._history.tape.of(Disconnected) if event.node != self._target) if self._hub else
            (event for event in self._history.tape.of(Lost) if event.learner == self._target
             and event.incarnation in (None, self._before)))
        if seen := min(((event.t, event.node) for event in missed if event.t >= since), default=None):
            return Phase(NOTICED, *seen)
        return Phase(NOTICED, missing="nobody said so")

    def _noticed_in_a_log(self) -> Phase:
        if not self._history.plan.trainer.logs_whom_it_misses:
            return Phase(NOTICED, missing="this trainer does not say whom it misses: write `noticed: REGEX` beside "
                                          "`progress`", ending="untold")
        lines = self._history.tape.of(Noticed)
        if not lines:
            return Phase(NOTICED, missing="no line of any node matches `noticed`", ending="untold")
        seen = min(((event.t, event.node) for event in lines
                    if event.node != self._target and event.t >= self._span.began), default=None)
        return Phase(NOTICED, missing="no other node said so") if seen is None else Phase(NOTICED, *seen)

    def _excluded(self, first: Phase) -> Phase:
        """By the first round that was made without it, before it had part in one again."""
        if self._hub:
            return Phase(EXCLUDED, missing="no round is made without it", ending="idle")
        until = self._history.end if first.t is None else first.t
        usual = max((members(merge) for merge in self._history.merges_between(
            max(self._history.origin, self._span.began - WINDOW_S), self._span.began)), default=0)
        for merge in self._after:
            if merge.t >= until:
                break
            asked = merge.asked or [part.learner for part in merge.contributions]
            if (self._target not in asked if self._history.coordinator else members(merge) < usual):
                return Phase(EXCLUDED, merge.t, merge.node)
        return Phase(EXCLUDED, missing="no round was made without it")

    def _back(self) -> Phase:
        """By the harness: its process is there, or the fault is over."""
        if self._span.planned.fault.stops_target or self._spawn is not None:
            if self._spawn is None:
                return Phase(RESTARTED, missing="it was not started again")
            return Phase(RESTARTED, self._spawn.t, "harness")
        if self._span.ended is None:
            return Phase(OVER, missing="the fault went on to the end")
        return Phase(OVER, self._span.ended, "harness")

    def _ready(self, back: Phase) -> Phase:
        """By itself: it has all that it needs to train; or by the coordinator, to which it connects again."""
        if back.t is None:
            return Phase(READY, missing=back.missing)
        if self._spawn is not None and self._history.coordinator is None:
            return self._ready_by_a_log(self._spawn)
        if self._spawn is not None:
            began = self._history.tape.of(Resumed if self._hub else Ready, node=self._place)
            own = next((event.t for event in began if event.inc == self._spawn.incarnation), None)
        elif self._given_up():
            again = [event.t for event in self._history.tape.of(Hello, node=self._history.recorder)
                     if event.learner == self._target and event.t >= back.t]
            own = min(again, default=None)
        else:
            return Phase(READY, missing="it never was away", ending="idle")
        if own is not None:
            return Phase(READY, own, self._place if self._spawn is not None else self._history.recorder)
        return Phase(READY, missing="it did not say so", ending="untold")

    def _ready_by_a_log(self, spawn: Spawn) -> Phase:
        if not self._history.plan.trainer.logs_who_is_ready:
            return Phase(READY, missing="this trainer does not say when it is ready: write `ready: REGEX` beside "
                                        "`progress`", ending="untold")
        own = next((event.t for event in self._history.tape.of(Prepared, node=self._place)
                    if event.inc == spawn.incarnation), None)
        return Phase(READY, missing="it did not say so") if own is None else Phase(READY, own, self._place)

    def _given_up(self) -> bool:
        """Return whether the coordinator gave it up while the fault lasted."""
        until = self._history.until(self._span)
        return any(event.learner == self._target and self._span.began <= event.t <= until
                   for event in self._history.tape.of(Lost))

    def _first_round(self, back: Phase) -> Phase:
        if back.t is None:
            return Phase(FIRST_ROUND, missing=back.missing)
        newest = self._spawn.incarnation if self._spawn is not None else self._before
        for merge in self._after:
            if merge.t > back.t and (self._hub or any(
                    part.learner == self._place and part.incarnation >= newest and part.arrived > back.t
                    for part in merge.contributions)):
                return Phase(FIRST_ROUND, merge.t, merge.node)
        return Phase(FIRST_ROUND, missing="it had part in none before the run ended")

    def _pace(self, first: Phase) -> Phase:
        """By the rounds themselves: as many a second, by as many, as before the first fault."""
        history = self._history
        start = history.origin
        if history.first_fault - start < _LEAST_BEFORE_S:
            return Phase(PACE, missing="the first fault came too early to know the pace before: let it come later",
                         ending="untold")
        if first.t is None:
            return Phase(PACE, missing=first.missing)
        rate, contributors = pulse(history, start, history.first_fault)
        for at in [first.t, *(merge.t for merge in self._after if merge.t > first.t)]:
            if at + WINDOW_S > history.end:
                break
            now, who = pulse(history, at, at + WINDOW_S)
            if now >= _AS_GOOD * rate and who >= _AS_GOOD * contributors:
                return Phase(PACE, at, history.recorder)
        return Phase(PACE, missing="it was not before the run ended")

    def _lost(self) -> int | None:
        """Return how many of its steps came to nothing when its process ended."""
        if not self._span.planned.fault.stops_target:
            return 0
        if self._hub:
            return None
        if self._history.plan.cluster.exchanges_fragments:
            node, accounting = (self._target, self._before), self._history.accounting
            lost = sum(float(accounting.fates[index, node].have(CRASH, LEFT).sum()) * size
                       for index, size in enumerate(accounting.sizes) if (index, node) in accounting.fates)
            return round(lost / sum(accounting.sizes))
        made, again = self._steps(self._target, self._before), self._anew()
        return max(0, made[-1].step - again[0].step + 1) if made and again else None

    def _made_good(self, first: Phase, lost: int | None) -> Phase:
        """By its own steps: as many as were lost, made anew."""
        if lost is None:
            return Phase(MADE_GOOD, missing="what was lost is not told", ending="untold")
        if lost == 0:
            return Phase(MADE_GOOD, missing="nothing was lost", ending="idle")
        anew = self._anew()
        if len(anew) >= lost and anew[lost - 1].t <= self._history.end:
            return Phase(MADE_GOOD, anew[lost - 1].t, self._place)
        return Phase(MADE_GOOD, missing=first.missing or "it was not before the run ended")

    def _steps(self, node: str, incarnation: int) -> list[Step]:
        return list(self._history.steps.get((node, incarnation), ()))
