"""Why a check failed: who was there to take part at each moment of the failing window, against what the trainer needed,
and which faults kept the others away.

All times are seconds since the steady state, as in the timeline.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

from diloco_chaos.chaos.checks.base import Verdict
from diloco_chaos.chaos.checks.injection import measure
from diloco_chaos.chaos.evidence.history import History, Span
from diloco_chaos.chaos.evidence.presence import Absence, Moment, Presence
from diloco_chaos.harness.base.lines import Instant
from diloco_chaos.harness.base.units import names, show_seconds

_AROUND_S = 1.0
_MOST_LINES = 3
_MOST_OF = 0.5
"""Share of a window: who was away for as much of it is why."""
_WORTH_TELLING = 0.05
"""Share of a time: who was away for less of it is left out."""
_APART_S = 0.05
"""Nodes that come back so close to each other do so at once."""
_OF_OTHERS = {"blast_radius", "goodput"}
"""Checks of what a fault costs those that it does not hit."""
_LOSS, _LONG_S = "loss_parity", 2.0
"""So long without a merge may be why a loss is higher."""
_STALL_S, _STALL_TIMES, _MOST_STALLS = 1.0, 5.0, 6
"""So long, and so many times the median, a time without a merge is at the least to be called a stall."""


def why(presence: Presence, start: float, end: float) -> list[str]:
    """Say what kept merges, or rounds, from being made between two times, in seconds since the run began."""
    history, cluster = presence.history, presence.history.plan.cluster
    moments = list(presence.moments(start, end))
    blocked = [moment for moment in moments if _blocked(history, moment)]
    if (seconds := sum(moment.end - moment.start for moment in blocked)) < _MOST_OF * (end - start):
        return _consistent(history, moments, seconds)
    worst = max(_runs(blocked), key=lambda run: run[-1].end - run[0].start)
    longest = max(worst, key=lambda moment: moment.end - moment.start)
    away = {absence.node for absence in longest.absent}
    left = len(cluster.names) - len(away - {history.coordinator})
    if history.coordinator is None:
        head = f"{left} of {len(cluster.names)} workers were there"
    elif history.coordinator in away:
        head = "the syncer was away"
    else:
        head = f"quorum {cluster.learners_needed} not reachable: {left} of {len(cluster.names)} learners available"
    zero = history.origin
    return [f"{worst[0].start - zero:.2f}-{worst[-1].end - zero:.2f} s  {head}",
            *(f"  {line}" for line in _absent(history, worst))]


def _blocked(history: History, moment: Moment) -> bool:
    """Say whether no merge could be made at this moment; where no coordinator says how many are enough: whether any
    node was absent."""
    away = {absence.node for absence in moment.absent}
    cluster = history.plan.cluster
    if history.coordinator is None:
        return bool(away)
    return history.coordinator in away or len(cluster.names) - len(away) < cluster.learners_needed


def _runs(moments: Sequence[Moment]) -> list[list[Moment]]:
    """Group moments that follow each other without a gap."""
    runs: list[list[Moment]] = []
    for moment in moments:
        if runs and runs[-1][-1].end == moment.start:
            runs[-1].append(moment)
        else:
            runs.append([moment])
    return runs


class _Away(NamedTuple):
    """All absences of a node in a time, together."""

    node: str
    seconds: float
    states: dict[str, float]
    """What it was instead, and for how long."""
    since: float
    until: float
    faults: tuple[Span, ...]


def _away(history: History, moments: Sequence[Moment]) -> list[_Away]:
    """Return each node's absence in these moments that is long enough to matter, the longest first."""
    absences: dict[str, list[tuple[float, Absence]]] = {}
    for moment in moments:
        for absence in moment.absent:
            absences.setdefault(absence.node, []).append((moment.end - moment.start, absence))
    totals = []
    for node, pieces in absences.items():
        states: dict[str, float] = {}
        for seconds, absence in pieces:
            states[absence.state] = states.get(absence.state, 0.0) + seconds
        totals.append(_Away(node, sum(states.values()), states, min(absence.since for _, absence in pieces),
                            max(absence.until for _, absence in pieces),
                            tuple({span.id: span for _, absence in pieces for span in absence.faults}.values())))
    least = _WORTH_TELLING * sum(moment.end - moment.start for moment in moments)
    return sorted((total for total in totals if total.seconds >= least),
                  key=lambda total: (-round(total.seconds, 1), total.since))


def _absent(history: History, moments: Sequence[Moment]) -> list[str]:
    """List absent nodes, their states and times; nodes with the same state and faults share a line."""
    groups: dict[tuple[str, str], list[_Away]] = {}
    for absence in _away(history, moments):
        state = max(absence.states, key=lambda state: absence.states[state])
        groups.setdefault((state, _faults(history, absence)), []).append(absence)
    return [f"{names([absence.node for absence in group])}  {state} {_when(history, group)}  {faults}"
            for (state, faults), group in groups.items()]


def _when(history: History, away: Sequence[_Away]) -> str:
    """Show the time from the first absence to the last return; nodes that return one by one make it a range."""
    zero, first, last = history.origin, min(absence.until for absence in away), max(absence.until for absence in away)
    back = f"{first - zero:.2f}-" if last - first >= _APART_S else ""
    return f"{min(absence.since for absence in away) - zero:.2f} s to " + (
        "the end" if last >= history.end else f"{back}{last - zero:.2f} s")


def _faults(history: History, away: _Away) -> str:
    more = f" and {len(away.faults) - _MOST_LINES} more" if len(away.faults) > _MOST_LINES else ""
    return ", ".join(_named(history, span) for span in away.faults[:_MOST_LINES]) + more or "no fault was on it"


def _named(history: History, span: Span) -> str:
    zero = history.origin
    until = "" if span.ended is None else f"-{span.ended - zero:.2f}"
    return f"{span.id} ({span.planned.fault.kind}, {span.began - zero:.2f}{until} s)"


def _consistent(history: History, moments: Sequence[Moment], blocked_s: float) -> list[str]:
    """List what may be a cause, without a proof: nodes that were absent for a part of the time, and the faults around
    it. `blocked_s`: seconds in which too few nodes took part."""
    zero, start, end = history.origin, moments[0].start, moments[-1].end
    away = [absence._replace(since=max(start, absence.since), until=min(end, absence.until))
            for absence in _away(history, moments)]
    groups: dict[tuple[str, tuple[str, ...]], list[_Away]] = {}
    for absence in away:
        states = [state for state, seconds in absence.states.items() if seconds >= _WORTH_TELLING * absence.seconds]
        groups.setdefault((_faults(history, absence), tuple(states)), []).append(absence)
    lines = [f"{names([absence.node for absence in group])}  {_when(history, group)}: " + ", ".join(
        f"{state} {show_seconds(max(absence.states[state] for absence in group))}" for state in states) + f"  {faults}"
        for (faults, states), group in list(groups.items())[:_MOST_LINES]]
    near = [span for span in history.spans if span.overlaps(start - _AROUND_S, end)
            and not any(span in absence.faults for absence in away)]
    if not near and not lines:
        return ["no fault was on, and enough were there: nothing in the event log says why"]
    if blocked_s and end - start - blocked_s >= _WORTH_TELLING * (end - start):
        those = "all" if history.coordinator is None else "enough"
        lines.append(f"{those} were there for {show_seconds(end - start - blocked_s)} of it")
    head = [f"who was away within {start - zero:.2f}-{end - zero:.2f} s:"] if lines else []
    return [*head, *(f"  {line}" for line in lines), *(f"consistent with {_named(history, span)}: "
                                                       f"{span.planned.describe()}" for span in near)]


def causes(history: History, verdicts: Sequence[Verdict]) -> dict[str, list[str]]:
    """Return the causes of each failed check; a check with the same causes as an earlier one names that one."""
    failed = [verdict for verdict in verdicts if verdict.verdict == "failed"]
    if not failed:
        return {}
    reasons: dict[str, list[str]] = {}
    presence = Presence(history)  # a replay of the event log, once for all of them
    for verdict in failed:
        explanation = _causes(presence, verdict)
        same = next((name for name, lines in reasons.items() if lines == explanation), None)
        reasons[verdict.name] = explanation if same is None else [f"for the same reason as {same}"]
    return reasons


def _causes(presence: Presence, verdict: Verdict) -> list[str]:
    """Explain the check's first window; without one, name the faults around the time in the evidence, or all."""
    history = presence.history
    if verdict.windows:
        return [*why(presence, *verdict.windows[0]), *_of_the_mode(history, verdict)]
    if verdict.name == _LOSS and (still := _longest_stall(presence)):
        return still
    at = moment(verdict)
    spans = [span for span in history.spans if span.injected is not None]
    near = [span for span in spans if at is not None and span.overlaps(at - 5.0, at + _AROUND_S)] or spans
    return [f"consistent with {_named(history, span)}: {measure(history, span).requested}" for span in near]


def _of_the_mode(history: History, verdict: Verdict) -> list[str]:
    """Return why a node that is hit costs the others, where that is how the mode works."""
    if verdict.name not in _OF_OTHERS or not history.plan.cluster.blocking or history.coordinator is None:
        return []
    zero = history.origin
    still = ", ".join(f"{start - zero:.2f}-{end - zero:.2f} s" for start, end in stalls(history)[:_MOST_STALLS])
    return [f"{history.plan.trainer.algorithm}: every learner waits for all others, so that one costs all"
            + (f"; nothing was merged {still}" if still else "")]


def stalls(history: History) -> list[tuple[float, float]]:
    """Times without a merge that are far longer than most, in the order of time, in seconds since the run began."""
    if history.zero is None:
        return []
    gaps = history.still(history.zero, history.end, history.merges)
    usual = median(end - start for start, end in gaps)
    return [(start, end) for start, end in gaps if end - start >= max(_STALL_S, _STALL_TIMES * usual)]


def _longest_stall(presence: Presence) -> list[str]:
    """Explain the longest time without a merge, as a cause of a loss that is too high; empty: it was short."""
    history = presence.history
    gaps = history.still(history.origin, history.end, history.merges)
    start, end = max(gaps, key=lambda gap: gap[1] - gap[0], default=(0.0, 0.0))
    if end - start < _LONG_S:
        return []
    zero = history.origin
    return [f"consistent with {show_seconds(end - start)} without a merge, {start - zero:.2f}-{end - zero:.2f} s:",
            *why(presence, start, end)]


def moment(verdict: Verdict) -> float | None:
    """The first that the evidence names, in seconds since the run began."""
    return next((part.t for line in verdict.lines for part in line if isinstance(part, Instant)), None)
