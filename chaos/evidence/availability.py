"""Who can have taken part in a merge, going by the plan's faults and the harness' own record of them.

A node is *out* from the moment at which a fault hits it to its return: to the first merge in which it has part again,
at the latest to when it is owed by the scenario's own bounds. Nothing that the trainer says makes it later than that.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from diloco_chaos.chaos.evidence.history import History, Span
from diloco_chaos.harness.record.tape.events import Corrupted, Disconnected, Hello, Observed

SETTLED_S = 1.0
"""After a node is back, until rounds that were under way meanwhile are over."""
RECONNECTED_S = 2.5
"""Seconds from when a link is whole until there is a connection: the longest wait before an attempt, and an attempt."""
NOTICED_STEPS = 5
"""Steps until a learner has noticed that its memory failed: until then it has part in merges as before."""
_MOMENT_S = 0.05
"""What a fault does at once is on the tape within this time."""
FORMED_S = 0.5
"""Seconds until a group that stood still while it formed has taken a step."""

Interval = tuple[float, float]


@dataclass(frozen=True)
class Interlude:
    """A time in which no node goes or comes."""

    start: float
    end: float
    present: frozenset[str]
    """Learners that no fault keeps from taking part."""
    coordinator: bool
    """Whether none keeps the coordinator from merging."""


class Availability:
    """See the module."""

    def __init__(self, history: History, but: str = "") -> None:
        """`but`: a fault of which nothing is said here."""
        self._history, self._but = history, but
        self._all = history.recorder  # out while nothing can be merged, whoever is there
        self._names = history.plan.cluster.names
        self._needed = history.plan.cluster.learners_needed

    @cached_property
    def out(self) -> dict[str, list[Interval]]:
        """Return for each node the intervals, in seconds since the run began, in which a fault kept it out."""
        outages: dict[str, list[Interval]] = {name: [] for name in (*self._names, self._all)}
        for span in self._history.spans:
            if span.injected is not None and span.id != self._but:
                for node in self._hit(span):
                    outages[node].append((self._hit_at(span, node), self._returned(span, node)))
                    if self._history.plan.cluster.coupling.waits == "group" and not span.planned.fault.stops_target:
                        # a group waits for nodes that are slow or not missed yet
                        outages[self._all].append(outages[node][-1])
        coupling = self._history.plan.cluster.coupling
        if coupling.waits == "group":  # it has to notice, and to form anew, whenever a node goes or comes
            outages[self._all] += [(back, back + coupling.regroup_s + FORMED_S) for gone, back in outages[self._all]
                                if back - gone > coupling.unseen_s - FORMED_S]  # all have given it up by then
            for node in self._names:
                for gone, back in outages[node]:
                    outages[self._all] += [(gone, gone + coupling.unseen_s + coupling.regroup_s + FORMED_S),
                                        (back - coupling.regroup_s - FORMED_S, back + FORMED_S)]
        for node in set(self._names) - set(self._history.plan.cluster.starters):  # not there before it joins
            outages[node].append((0.0, self._first_part(node, 0.0)))
        return outages

    def pieces(self, start: float, end: float) -> Iterator[Interlude]:
        """Yield the pieces that [start, end) is made of, in order."""
        borders = {moment for intervals in self.out.values() for interval in intervals for moment in interval
                   if start < moment < end}
        for left, right in pairwise([start, *sorted(borders), end]):
            away = {node for node, intervals in self.out.items()
                    if any(gone < right and left < back for gone, back in intervals)}
            yield Interlude(left, right, frozenset(self._names) - away, self._all not in away)

    def able(self, piece: Interlude) -> bool:
        """Return whether something could be merged: the coordinator was there, and learners enough."""
        return piece.coordinator and len(piece.present) >= self._needed

    def quiet(self, start: float, end: float) -> bool:
        """Return whether no node was out between these times, and every node that was out before has settled."""
        return all(self.untouched(node, start, end) for node in self.out)

    def untouched(self, node: str, start: float, end: float) -> bool:
        """Return whether this node was not out between these times, and has settled if it was out before."""
        return not any(gone < end and start < back + SETTLED_S for gone, back in self.out[node])

    def goes_on(self, start: float, end: float) -> bool:
        """Return whether what was hit between these times, if anything, may delay no merge: neither the coordinator
        was, nor as many learners as it takes."""
        return (self.untouched(self._all, start, end)
                and sum(self.untouched(name, start, end) for name in self._names) >= self._needed)

    def unable_s(self, start: float, end: float) -> float:
        """Return the seconds in which nothing could be merged."""
        return sum(piece.end - piece.start for piece in self.pieces(start, end) if not self.able(piece))

    def out_s(self, node: str, start: float, end: float) -> float:
        """Return the seconds in which this node was out, or nothing could be merged."""
        return sum(piece.end - piece.start for piece in self.pieces(start, end)
                   if node not in piece.present or not self.able(piece))

    def _hit(self, span: Span) -> Sequence[str]:
        """Return the nodes that a fault keeps from taking part."""
        fault = span.planned.fault
        return [node for node in fault.affected_nodes(self._names) if node in self._names or node == self._all]

    def _hit_at(self, span: Span, node: str) -> float:
        """Return the time in seconds when a fault hit a node: memory fails before the next inner step, which a learner
        that waits for others makes much later."""
        return self._failed.get((span.id, node), span.began)

    def _returned(self, span: Span, node: str) -> float:
        """Return the time in seconds when a node had part in a merge again, at the latest when it must have."""
        if span.ended is None:
            return self._history.end
        fault, cluster = span.planned.fault, self._history.plan.cluster
        over = self._observed.get(span.id, span.ended) if fault.impersonates else span.ended
        if fault.corrupts_memory:
            over = max(over, self._hit_at(span, node)) + NOTICED_STEPS * cluster.step_time_of(node)
        process = fault.stops_target or fault.starts_process()
        latest = over + (self._history.plan.checks.reintegration.within if process else
                         cluster.heartbeat_timeout + RECONNECTED_S)
        return min(latest, self._first_part(node, over), self._history.end)

    @cached_property
    def _observed(self) -> dict[str, float]:
        """Return the time in seconds when the harness was done with each fault that takes its time, by the fault's id.
        """
        return {event.fault: event.t for event in self._history.tape.of(Observed, node="harness")}

    @cached_property
    def _failed(self) -> dict[tuple[str, str], float]:
        """Return the times in seconds when memory failed, by fault and node."""
        return {(event.fault, event.node): event.t for event in self._history.tape.of(Corrupted)}

    def _first_part(self, node: str, after: float) -> float:
        """Return the time in seconds when a merge was made that this node had part in, of what came later than `after`:
        its newest process then, for an older one may still be there."""
        after = max(after, self._reconnected(node, after))
        newest = self._history.tape.newest(node, after + _MOMENT_S)
        return next((merge.t for merge in self._history.merges if merge.t > after and (
            node == self._all or any(part.learner == node and part.incarnation >= newest
                                  and part.arrived > after
                                  for part in merge.contributions))), self._history.end)

    def _reconnected(self, node: str, after: float) -> float:
        """Return the time in seconds when a node came back that had given up its connection by then: what it had sent
        on that may arrive later."""
        gone = max((event.t for event in self._history.tape.of(Disconnected, node=node)
                    if event.t <= after + _MOMENT_S), default=math.inf)
        return min((hello.t for hello in self._history.tape.of(Hello, node=self._history.recorder)
                    if hello.learner == node and hello.t > gone), default=0.0)
