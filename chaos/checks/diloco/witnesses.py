"""What others saw of the times that the syncer tells: its word alone proves nothing about itself."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from statistics import median

from diloco_chaos.chaos.evidence.availability import Availability
from diloco_chaos.chaos.evidence.clocks import WRITTEN_S
from diloco_chaos.chaos.evidence.history import History
from diloco_chaos.chaos.scenario.model import COORDINATOR
from diloco_chaos.harness.base.lines import Line, line
from diloco_chaos.harness.base.units import show_seconds
from diloco_chaos.harness.record.tape.events import (
    Hello,
    Lost,
    Merge,
    OuterGradient,
    Received,
    Refused,
    Resumed,
    Skipped,
    Step,
)

_WEIGHT, _OUTLIER = 0.1, 4.0
"""The syncer's moving average of step times (docs/protocol.md): the weight of a sample, and how many times the average
it counts as at the most."""
_SETTLED = 60
"""Samples after which the first one weighs next to nothing."""
_WINDOW_S = 3.0
"""The syncer may not have heard of the newest steps yet."""
_OFF = 0.1
"""Share by which the mean of step times may be off: reports are stamped a moment after the step."""
_COMMIT_S, _SELDOM = 0.25, 0.1
"""A merge is written down so soon after it was closed, but for a share of them in which the disk was slow."""


class Witnesses:
    """The learners' own events, and when the syncer wrote what it tells of."""

    def __init__(self, history: History) -> None:
        self._history, self._slack = history, history.clocks.tolerance + WRITTEN_S
        self._quiet = history.once(Availability).quiet
        self._answered = {(event.node, event.inc, event.round): event.t for event in history.tape.of(OuterGradient)}
        self._answers: dict[tuple[str, int], float] = {}
        """(learner, round) -> when it had first computed an answer, whichever process of it."""
        for (node, _, round_), t in self._answered.items():
            self._answers[node, round_] = min(t, self._answers.get((node, round_), t))
        self._refused = {(event.learner, event.round) for event in history.tape.of(Refused, node=COORDINATOR)
                         if event.reason != "late"}
        self._lost: dict[str, list[float]] = defaultdict(list)
        for gone in history.tape.of(Lost, node=COORDINATOR):
            self._lost[gone.learner].append(gone.t)
        self._received: dict[tuple[int, int], float] = {}
        closed = {(merge.fragment, merge.version): merge.closed for merge in history.merges}
        self._slowest: list[tuple[float, float]] = []
        """(when, the longest that any receipt so far came after the close of its round), in seconds, in order."""
        for event in history.tape.of(Received):
            place = event.fragment, event.version
            self._received[place] = min(event.t, self._received.get(place, event.t))
            took = event.t - closed.get(place, event.t)
            self._slowest.append((event.t, max(took, self._slowest[-1][1] if self._slowest else 0.0)))
        self._averages = {name: _Averages(history, name) for name in history.plan.cluster.names}
        self._late: list[Merge] = []
        self._judged = 0

    def against(self, merge: Merge) -> list[str]:
        """Return what in a merge's times contradicts what learners saw of it, in words."""
        problems = []
        for part in merge.contributions:
            sent = self._answered.get((part.learner, part.incarnation, merge.round))
            if sent is not None and not part.arrived >= sent - self._slack:
                problems.append(f"{part.learner}'s contribution is said to have arrived "
                                f"{show_seconds(sent - part.arrived)} before {part.learner} had computed it")
            if sent is not None and not merge.opened <= sent + self._slack:
                problems.append(f"opened {show_seconds(merge.opened - sent)} after {part.learner} had answered")
        received = self._received.get((merge.fragment, merge.version))
        if received is not None and not merge.closed <= received + self._slack:
            problems.append(f"closed {show_seconds(merge.closed - received)} after it had been received")
        if self._quiet(merge.opened - _WINDOW_S, merge.t):
            self._judged += 1
            if not merge.t - merge.closed <= _COMMIT_S:
                self._late.append(merge)
            problems += self._step_time(merge)
            problems += self._sync_time(merge)
            problems += [f"{name} is said to have declined, and it answered"
                         for name in sorted(self.not_declined(merge)) if name not in merge.asked]
        return problems

    def not_declined(self, merge: Merge) -> set[str]:
        """Return who is said to have declined, and had an answer by its own tape that the syncer did not refuse, on a
        connection that stood."""
        merged = {part.learner for part in merge.contributions}
        return {name for name in merge.declined if name not in merged and (name, merge.round) in self._answers
                and (name, merge.round) not in self._refused
                and not any(merge.opened <= t <= merge.t for t in self._lost[name])}

    def dated_back(self) -> list[Line]:
        """Say how often a merge that nothing had hit was written down long after it is said to have been closed; a slow
        disk does that now and then."""
        if len(self._late) <= _SELDOM * self._judged:
            return []
        worst = max(self._late, key=lambda merge: merge.t - merge.closed)
        return [line(f"{len(self._late)} of {self._judged} merges were written down more than "
                     f"{show_seconds(_COMMIT_S)} after they are said to have been closed: fragment {worst.fragment} "
                     f"version {worst.version} at ", worst.t, f", {show_seconds(worst.t - worst.closed)} later")]

    def _step_time(self, merge: Merge) -> list[str]:
        """The step time that the grace window was computed from is that of the median learner, by their own steps."""
        known = [bounds for name in self._history.plan.cluster.starters
                 if (bounds := self._averages[name].around(merge.quorum_at)) is not None]
        if len(known) < len(self._history.plan.cluster.starters):
            return []  # who has told of no step yet counts for nothing, and somebody's word may be under way
        least, most = (median(bounds[end] for bounds in known) for end in (0, 1))
        if (1 - _OFF) * least - self._slack <= merge.step_time <= (1 + _OFF) * most + self._slack:
            return []
        return [f"its grace window was computed from steps of {show_seconds(merge.step_time)}, and the median "
                f"learner's took {show_seconds(least)} to {show_seconds(most)}"]

    def _sync_time(self, merge: Merge) -> list[str]:
        """No average of the times that broadcasts took is longer than the longest of them, and what told of it may have
        waited for a step."""
        place = bisect_left(self._slowest, (merge.quorum_at,)) - 1
        longest = (self._slowest[place][1] if place >= 0 else 0.0) + merge.step_time + self._slack
        return [] if merge.sync_time <= longest else [
            f"its grace window was computed from a broadcast that takes {show_seconds(merge.sync_time)}, and none took "
            f"longer than {show_seconds(longest)}"]


class _Averages:
    """The moving average of one learner's step times, computed from its own steps."""

    def __init__(self, history: History, name: str) -> None:
        self._begun = [event.t for event in history.tape.of(Hello, Lost, Resumed, node=COORDINATOR)
                       if isinstance(event, Resumed) or event.learner == name]
        self._bounds: list[tuple[float, float, float]] = []
        """(when, least, most) of each step."""
        stands = history.plan.cluster.blocking
        received = history.tape.by_process(Received)
        for process, events in sorted(history.tape.by_process(Step, Skipped).items()):
            if process[0] == name:
                self._add([event.t for event in events], [event.t for event in received.get(process, ())] * stands)
        self._bounds.sort()

    def _add(self, steps: Sequence[float], receipts: Sequence[float]) -> None:
        """One process. Of a step before which it may have stood, until it received something, the time is not known."""
        young: list[float] = []
        averages: list[float] = []
        for before, after in pairwise(steps):
            if bisect_right(self._begun, before) != bisect_right(self._begun, after):
                # A session of its own. It may count this step, for a hello is heard after the connection stands.
                young, averages = [after - before], []
                continue
            known = bisect_right(receipts, before) == bisect_right(receipts, after)
            taken = [average + _WEIGHT * (min(after - before, _OUTLIER * average) - average)
                     for average in averages or [after - before]]
            taken += [] if known else averages
            averages = [min(taken), max(taken)]
            young = [*young, after - before][:_SETTLED]
            own = [*averages, *(young if len(young) < _SETTLED else ())]
            self._bounds.append((after, min(own), max(own)))

    def around(self, at: float) -> tuple[float, float] | None:
        """Return the least and the most that the average can have been, as far as the syncer can have heard by then;
        None where the learner came or went not long before: the syncer may have heard of too few steps."""
        if bisect_right(self._begun, at - _WINDOW_S) != bisect_right(self._begun, at + WRITTEN_S):
            return None
        bounds = self._bounds[bisect_left(self._bounds, (at - _WINDOW_S,)):bisect_left(self._bounds, (at + WRITTEN_S,))]
        return (min(least for _, least, _ in bounds), max(most for *_, most in bounds)) if bounds else None
