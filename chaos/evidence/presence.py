"""Who was there to take part in a merge, moment by moment, replayed from the event log: connected, and brought up to
date. `availability` says who can have been, going by the plan; this one says who was, and since when not. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from diloco_chaos.chaos.evidence.history import History, Span
from diloco_chaos.harness.record.tape.events import Event, Exit, Hello, Lost, Merge, Ready, Resumed, Spawn, Step

_PRESENT = "there"
_HIDDEN = {"paused": "paused", "partitioned": "partitioned"}
"""What a fault does to a node that the node can't tell of -> what it is called."""
_BECAUSE = {"not connected", "starting", "recovering"}
"""What a node is because of such a fault while it lasts."""
_BEFORE_S = 1.0
"""So long before a node was missed may have come what is why."""


@dataclass(frozen=True)
class Absence:
    """A node that could not take part."""

    node: str
    state: str
    """What it was instead."""
    since: float
    """When it was no longer there; what it was first it need not be any more."""
    until: float
    """When it is there again; the end of the run if it never is."""
    faults: tuple[Span, ...]
    """Those that had hit it by then, in the order of time."""


@dataclass(frozen=True)
class Moment:
    """A time in which no node goes or comes."""

    start: float
    end: float
    absent: tuple[Absence, ...]


class Presence:
    """See the module."""

    def __init__(self, history: History) -> None:
        self.history = history
        self._names = history.plan.cluster.names
        self._newest: dict[str, int] = {}
        nodes = [*self._names, *filter(None, [history.coordinator])]
        self._changes: dict[str, list[tuple[float, str]]] = {name: [(0.0, "not started")] for name in nodes}
        signs = history.plan.trainer.counting.signs
        for event in history.tape.of(Spawn, Exit, Hello, Lost, Ready, Resumed, Merge, *signs):
            self._on(event)
        self._hidden = {name: [(span, _HIDDEN[span.planned.fault.shown_as]) for span in history.spans
                               if span.injected is not None and span.planned.fault.shown_as in _HIDDEN
                               and name in span.planned.fault.affected_nodes(self._names)] for name in nodes}

    def moments(self, start: float, end: float) -> Iterator[Moment]:
        """Yield the moments that [start, end) is made of, in order."""
        borders = {t for changes in self._changes.values() for t, _ in changes}
        borders |= {t for hidden in self._hidden.values() for span, _ in hidden
                    for t in (span.began, self.history.until(span))}
        for left, right in pairwise([start, *sorted(t for t in borders if start < t < end), end]):
            absent = (self._absence(node, (left + right) / 2) for node in self._changes)
            yield Moment(left, right, tuple(absence for absence in absent if absence is not None))

    def _absence(self, node: str, t: float) -> Absence | None:
        state, gone = self._state(node, t)
        hidden = next(((span, what) for span, what in self._hidden[node]
                       if span.began <= t < self.history.until(span)), None)
        if state == _PRESENT:
            if hidden is None:
                return None
            state, gone = hidden[1], hidden[0].began
            until = self.history.until(hidden[0])
        else:
            state = hidden[1] if hidden is not None and state in _BECAUSE else state
            gone = min([gone, *(span.began for span, _ in self._hidden[node]
                                if span.began <= gone < self.history.until(span))])
            until = next((began for began, was in self._changes[node] if began > t and was == _PRESENT),
                         self.history.end)
        hit = [span for span in self.history.spans if span.overlaps(gone - _BEFORE_S, t)
               and node in span.planned.fault.affected_nodes(self._names)]
        return Absence(node, state, gone, until, tuple(sorted(hit, key=lambda span: span.began)))

    def _state(self, node: str, t: float) -> tuple[str, float]:
        """Return what a node was by its own doings, and since when it was not there."""
        before = [change for change in self._changes[node] if change[0] <= t]
        gone, state = before[-1]
        for began, was in reversed(before):
            if was == _PRESENT:
                break
            gone = began
        return state, gone

    def _on(self, event: Event) -> None:
        match event:
            case Spawn():
                self._newest[event.target] = event.incarnation
                self._set(event.target, event.t, "starting")
            case Exit() if event.target:  # else it is a node's own word
                if self._newest.get(event.target) == event.incarnation:
                    self._set(event.target, event.t, "gone")
            case Hello():
                self._set(event.learner, event.t, "recovering")
            case Lost():
                self._set(event.learner, event.t, "not connected", unless=("gone", "starting"))
            case Resumed():
                self._set(event.node, event.t, _PRESENT)
            case Ready():
                self._set(event.node, event.t, _PRESENT, unless=("gone", "not connected"))
            case Step():
                self._set(event.node, event.t, _PRESENT)
            case Merge():
                self._set(event.node, event.t, _PRESENT)
                for part in event.contributions if self._missing() else ():
                    self._set(part.learner, event.t, _PRESENT, unless=("gone", "not connected", "starting"))
            case _:
                pass

    def _missing(self) -> bool:
        """Return whether a node is absent that a merge can show to be present."""
        return any(changes[-1][1] != _PRESENT for changes in self._changes.values())

    def _set(self, node: object, t: float, state: str, unless: tuple[str, ...] = ()) -> None:
        changes = self._changes.get(node) if isinstance(node, str) else None
        if changes is not None and changes[-1][1] not in (state, *unless):
            changes.append((t, state))
