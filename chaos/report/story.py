"""What a report says of what did not hold, in lines: the check, why it failed, what it tells itself, what happened
around it, and what the logs say.

All times are seconds since the steady state, as in the timeline.
"""

from __future__ import annotations

from collections.abc import Sequence

from diloco_chaos.chaos.checks.base import Bound, Verdict
from diloco_chaos.chaos.evidence.history import History
from diloco_chaos.chaos.evidence.impersonation import usurpations
from diloco_chaos.chaos.report.causes import causes, moment
from diloco_chaos.chaos.runner.run import Result
from diloco_chaos.harness.base.lines import text
from diloco_chaos.harness.base.units import shortened
from diloco_chaos.harness.record.tape.events import Event, Exit

_AROUND_S = 1.0
_MOST_EVENTS, _MOST_LINES = 8, 3
_WIDEST = 110
QUIET = {"step", "outer_gradient", "upload", "received", "merge", "start", "imported", "ready", "listening",
         "machine"}
"""Events of which there are many."""
VERDICTS = {"passed": "passed", "failed": "failed", "unknown": "inconclusive"}
"""A check's verdict, as people read it."""
MARKS = {"passed": "✓", "failed": "✗", "unknown": "?"}


def story(result: Result, verbose: bool = False) -> list[str]:
    """Plain lines; empty where every check passed. `verbose`: with all that is told, the events around it and the ends
    of the logs."""
    bad = [verdict for verdict in result.judgement.checks if verdict.verdict != "passed"]
    if not bad:
        return []
    doubted = [verdict.name for verdict in bad if verdict.doubted]
    lines, why = _strangers(result), causes(result.history, result.judgement.checks)
    for verdict in sorted(bad, key=lambda verdict: verdict.verdict == "failed"):  # what failed comes last: it is read
        if verdict.name not in doubted:
            lines += _check_lines(result, verdict, why.get(verdict.name, []), verbose)
    if doubted:
        lines += [f"? inconclusive for that reason: {', '.join(doubted)}"]
    return _logs(result, verbose) + lines


def _check_lines(result: Result, verdict: Verdict, why: Sequence[str], verbose: bool) -> list[str]:
    lines = [f"{MARKS[verdict.verdict]} {verdict.name}  {verdict.measured}{_limit(verdict.allowed)}"]
    lines += [f"    {line}" for line in why]
    shown = verdict.lines if verbose else verdict.lines[:_MOST_LINES]
    lines += [f"    {text(line, result.history.origin)}" for line in shown]
    if len(shown) < len(verdict.lines):
        lines.append(f"    and {len(verdict.lines) - len(shown)} more (--verbose)")
    at = moment(verdict)
    if verbose and verdict.verdict == "failed" and at is not None:
        lines += [f"    {line}" for line in _around(result, at)]
    return lines


def headline(result: Result) -> str:
    """Return what did not hold, in a line: pytest shows it in its summary."""
    bad = [verdict for verdict in result.judgement.checks if verdict.verdict == "failed"]
    if bad:
        return "; ".join(f"{verdict.name} {verdict.measured}{_limit(verdict.allowed).replace('; ', ', ')}"
                         for verdict in bad)
    return because(result) or "inconclusive: " + ", ".join(
        verdict.name for verdict in result.judgement.checks if verdict.verdict == "unknown")


def because(result: Result) -> str:
    """Return why the run as a whole proves nothing; empty where it is not the run."""
    return text(result.judgement.why, result.history.origin) or result.outcome.message


def _limit(allowed: Bound) -> str:
    """Return what a check allows, in words."""
    if not allowed.words:
        return ""
    return f"; {'at least' if allowed.kind == 'least' else 'limit'} {allowed.words}"


def _strangers(result: Result) -> list[str]:
    """List the impersonations that the event log shows, before anything else is blamed; empty: there were none."""
    intrusions = usurpations(result.history)
    more = [f"    and {len(intrusions) - _MOST_EVENTS} times more"] if len(intrusions) > _MOST_EVENTS else []
    return ["somebody else who has this run's token took part; what follows may be their doing",
            *(f"    {text(line, result.history.origin)}" for line in intrusions[:_MOST_EVENTS]),
            *more] if intrusions else []


def _around(result: Result, at: float) -> list[str]:
    tape = result.history.tape
    events = [event for event in tape.named(*set(tape.names) - QUIET) if abs(event.t - at) <= _AROUND_S]
    events.sort(key=lambda event: abs(event.t - at))
    return [_line(event, result.history)
            for event in sorted(events[:_MOST_EVENTS], key=lambda event: event.t)]


def _line(event: Event, history: History) -> str:
    """Show an event in one line; where there is no coordinator, rounds were read from logs."""
    fields = ", ".join(f"{name} {value}" for name, value in event.payload()
                       if isinstance(value, (str, int, float)))
    by_logs = history.coordinator is None and event.node == history.recorder
    source = "by the logs:" if by_logs else f"{event.node}.{event.inc}"
    return shortened(f"{event.t - history.origin:7.2f} s  {source} {event.event}  {fields}", _WIDEST)


def _logs(result: Result, verbose: bool) -> list[str]:
    """The ends of the logs that say anything; else of those alone whose process ended by itself."""
    gone = {str(event.target) for event in result.history.tape.of(Exit, node="harness")
            if event.status and not event.killed}
    lines: list[str] = []
    for name in (*result.history.plan.cluster.all_nodes, "links"):
        tail = [line for line in result.folder.log_tail(name) if line.strip()] if verbose or name in gone else []
        lines += [f"the end of {name}'s log:", *(shortened(f"    {line}", _WIDEST) for line in tail)] if tail else []
    return lines
