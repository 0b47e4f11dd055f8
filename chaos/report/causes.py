"""The story of a failure: which fault, which symptom, the events around it, what the logs say, and what repeats it."""

from __future__ import annotations

import re

from chaos.checks import DOUBTED
from chaos.checks.base import Verdict
from chaos.checks.injection import measure
from chaos.evidence.succession import usurpations
from chaos.runner.run import Result
from chaos.scenario.model import SYNCER
from harness.machine import SAMPLE
from harness.tape.event import Event

_AROUND_S = 1.0
_MOST_EVENTS = 8
_WIDEST = 110
_QUIET = {"step", "outer_gradient", "upload", "received", "merge", "start", "imported", "ready", "listening",
          SAMPLE}
VERDICTS = {"passed": "passed", "failed": "failed", "unknown": "inconclusive"}
"""A check's verdict, as people read it."""


def story(result: Result) -> list[str]:
    """Plain lines; empty where every check passed."""
    bad = [verdict for verdict in result.judgement.checks if verdict.verdict != "passed"]
    if not bad:
        return []
    doubted = [verdict.name for verdict in bad if verdict.evidence and DOUBTED in verdict.evidence[0]]
    lines = _strangers(result)
    for verdict in sorted(bad, key=lambda verdict: verdict.verdict != "failed"):
        if verdict.name not in doubted:
            lines += _one(result, verdict)
    if doubted:
        lines += [f"Inconclusive for that reason: {', '.join(doubted)}", ""]
    lines += _logs(result)
    return lines


def _one(result: Result, verdict: Verdict) -> list[str]:
    measured = f"{verdict.measured}; bound {verdict.bound}" if verdict.bound else verdict.measured
    lines = [f"{verdict.name} {VERDICTS[verdict.verdict]}: {measured}"]
    lines += [f"  {line}" for line in verdict.evidence]
    if verdict.verdict == "failed":
        at = _moment(verdict)
        lines += [f"  fault {line}" for line in _suspects(result, at)]
        if at is not None:
            lines += [f"  {line}" for line in _around(result, at)]
    return [*lines, ""]


def _strangers(result: Result) -> list[str]:
    """Who had no business here, before anything else is blamed."""
    found = usurpations(result.history)
    more = [f"  and {len(found) - _MOST_EVENTS} times more"] if len(found) > _MOST_EVENTS else []
    return ["somebody else who has this run's token took part; what follows may be their doing",
            *(f"  {line}" for line in found[:_MOST_EVENTS]), *more, ""] if found else []


def _moment(verdict: Verdict) -> float | None:
    """The first time that the evidence names, in seconds since the run began."""
    for line in verdict.evidence:
        if (found := re.search(r"(\d+\.\d\d) s", line)):
            return float(found[1])
    return None


def _suspects(result: Result, at: float | None) -> list[str]:
    """The faults that were on at that moment, or all of them."""
    history = result.history
    spans = [span for span in history.spans if span.injected is not None]
    near = [span for span in spans if at is not None and span.overlaps(at - 5.0, at + _AROUND_S)] or spans
    return [f"{span.planned.id} at {span.injected:.2f} s: {measure(history, span).requested} "
            f"(observed: {measure(history, span).observed})" for span in near]


def _around(result: Result, at: float) -> list[str]:
    events = [event for event in result.history.tape.events
              if abs(event.t - at) <= _AROUND_S and event.event not in _QUIET]
    events.sort(key=lambda event: abs(event.t - at))
    there = result.history.plan.cluster.all_nodes
    return [_line(event, SYNCER in there) for event in sorted(events[:_MOST_EVENTS], key=lambda event: event.t)]


def _line(event: Event, hub: bool) -> str:
    """`hub`: there is a coordinator; else what it records is what logs told."""
    fields = ", ".join(f"{name} {value}" for name, value in event.fields.items()
                       if isinstance(value, (str, int, float)))
    who = f"{event.node}.{event.incarnation}" if hub or event.node != SYNCER else "by the logs:"
    return _short(f"{event.t:7.2f} s  {who} {event.event}  {fields}")


def _short(line: str) -> str:
    return line if len(line) <= _WIDEST else line[:_WIDEST - 1] + "…"


def _logs(result: Result) -> list[str]:
    """The ends of the logs that say anything."""
    lines: list[str] = []
    for name in (*result.history.plan.cluster.all_nodes, "links"):
        tail = [line for line in result.folder.log_tail(name) if line.strip()]
        lines += [f"the end of {name}'s log:", *(_short(f"  {line}") for line in tail), ""] if tail else []
    return lines
