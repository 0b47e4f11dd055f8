"""Faults of processes, from exit statuses and from what the node did, or did not, record meanwhile."""

from __future__ import annotations

import signal
from itertools import pairwise

from chaos.checks.injection.base import exits, status_words
from chaos.evidence.history import History, Span
from chaos.scenario.model import SYNCER
from faults import Straggler
from harness.units import show_seconds

_FACTOR_SLACK = 0.12
"""A duty cycle of a second and steps of tens of milliseconds round a straggler's speed by about so much."""
_SILENT = 0.9
"""Share of a pause in which a node must have recorded nothing."""
_PARTIAL_WITHIN_S = 2.0
_LAST_WORDS_S = 0.2


def killed(history: History, span: Span) -> tuple[bool, str]:
    """SIGKILL is what the kernel reports, and nothing came after it."""
    ok, observed = _statuses(history, span, (-signal.SIGKILL,))
    for target in span.planned.fault.targets:
        if (ghost := _ghost(history, target, span.injected or 0.0)) is not None:
            return False, f"{observed}, but {target}.{ghost} went on recording"
    when = span.planned.fault.when
    if not ok or when is None or not str(when.failpoint).endswith(".half"):
        return ok, observed
    partial = next((event for event in history.tape.of("partial_frame", node=SYNCER)
                    if event["peer"] in span.planned.fault.targets
                    and abs(event.t - (span.injected or 0.0)) < _PARTIAL_WITHIN_S), None)
    if partial is None or not 0 < partial["bytes"] < partial["expected"]:
        return False, f"{observed}, but the syncer saw no part of a frame"
    return True, f"{observed}; {partial['bytes']} of {partial['expected']} bytes arrived"


def ended(history: History, span: Span) -> tuple[bool, str]:
    """It ended in good order, or by SIGTERM before it could say so, or by the SIGKILL that follows."""
    return _statuses(history, span, (0, -signal.SIGTERM, -signal.SIGKILL))


def paused(history: History, span: Span) -> tuple[bool, str]:
    """Every target recorded nothing for as long as it was to last, or did if it was undone before."""
    start, end = span.injected or 0.0, history.until(span)
    asked = min(span.planned.fault.duration or 0.0, end - start)
    silences = []
    for target in span.planned.fault.targets:
        times = [event.t for event in history.tape.events if event.node == target]
        inside = [start, *(t for t in times if start < t < end), end]
        silences.append(max((later - earlier for earlier, later in pairwise(inside)), default=0.0))
    shortest = min(silences)
    return shortest >= _SILENT * asked > 0, f"silent for {show_seconds(shortest)}"


def jumped(history: History, span: Span) -> tuple[bool, str]:
    """The node went on with another clock; it says so itself."""
    by = float(span.observed.get("jumped_s", 0.0))
    return by > 0, f"its clock is {show_seconds(by)} ahead"


def joined(history: History, span: Span) -> tuple[bool, str]:
    """Every target was started, and the syncer heard from it."""
    hello = {event["learner"]: event.t for event in history.tape.of("hello", node=SYNCER)
             if event.t >= (span.injected or 0.0)}
    missing = [target for target in span.planned.fault.targets if target not in hello]
    if missing:
        return False, f"the syncer never heard of {', '.join(missing)}"
    took = max(hello[target] for target in span.planned.fault.targets) - (span.injected or 0.0)
    return True, f"known to the syncer after {show_seconds(took)}"


def superseded(history: History, span: Span) -> tuple[bool, str]:
    """A successor was started beside each target; the old one, back again, saw it, and ended."""
    said = []
    for target in span.planned.fault.targets:
        successor = next((event["incarnation"] for event in history.tape.of("spawn", node="harness")
                          if event["target"] == target and event.t >= (span.injected or 0.0) - 0.1), None)
        if successor is None:
            return False, f"{target} got no successor"
        old = successor - 1
        seen = any(event.node == target and event.incarnation == old for event in history.tape.of("superseded"))
        gone = next((event for event in history.tape.of("exit", node="harness")
                     if (event["target"], event["incarnation"]) == (target, old)), None)
        if gone is None or not seen:
            return False, f"{target}.{old} {'did not end' if gone is None else 'never saw that it was superseded'}"
        said.append(f"{target}.{old} came back, saw {target}.{successor}, and ended ({status_words(gone['status'])})")
    return True, "; ".join(said)


def slowed(history: History, span: Span) -> tuple[bool, str]:
    """The share of its nominal steps that each target took."""
    fault = span.planned.fault
    assert isinstance(fault, Straggler), "registered for stragglers"
    start, end = span.injected or 0.0, history.until(span)
    if not history.plan.cluster.step_time or end <= start:
        return False, "no nominal pace, or no time, to measure it against"
    rates = [history.pace(target, start, end) for target in fault.targets]
    slack = _FACTOR_SLACK + fault.spread / 2
    near = all(abs(rate - fault.factor) <= slack and 0 < rate < (1 + fault.factor) / 2 for rate in rates)
    return near, ", ".join(f"{rate:.0%} of nominal speed" for rate in rates)


def _statuses(history: History, span: Span, expected: tuple[int, ...]) -> tuple[bool, str]:
    found = exits(history, span)
    missing = [target for target in span.planned.fault.targets if target not in found]
    if missing:
        return False, f"{', '.join(missing)} did not end"
    words = ", ".join(status_words(event["status"]) for event in found.values())
    return all(event["status"] in expected for event in found.values()), f"exit status {words}"


def _ghost(history: History, target: str, at: float) -> int | None:
    """The incarnation that was killed, where it recorded anything more than a moment later."""
    gone = [event for event in history.tape.of("exit", node="harness") if event["target"] == target
            and event.fields.get("killed") and abs(event.t - at) < _PARTIAL_WITHIN_S]
    return next((event["incarnation"] for event in gone for later in history.tape.events
                 if (later.node, later.incarnation) == (target, event["incarnation"])
                 and later.t > event.t + _LAST_WORDS_S), None)
