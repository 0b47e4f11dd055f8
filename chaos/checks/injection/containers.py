"""Faults that only containers have, from what the engine reported and the syncer saw."""

from __future__ import annotations

import signal

from chaos.checks.injection.base import exits, status_words
from chaos.evidence.history import History, Span
from chaos.scenario.model import SYNCER
from harness.units import show_seconds

_BACK_S = 5.0
"""A connection that a restart broke is made again within this time."""


def out_of_memory(history: History, span: Span) -> tuple[bool, str]:
    """SIGKILL, and the engine says that it was for want of memory."""
    found = exits(history, span)
    missing = [target for target in span.planned.fault.targets if target not in found]
    if missing:
        return False, f"{', '.join(missing)} did not end"
    words = ", ".join(status_words(event["status"]) for event in found.values())
    if not all(event.fields.get("oom") for event in found.values()):
        return False, f"exit status {words}, but not for want of memory"
    return all(event["status"] == -signal.SIGKILL for event in found.values()), f"exit status {words}, out of memory"


def links_restarted(history: History, span: Span) -> tuple[bool, str]:
    """Every learner was lost, and came back."""
    start = span.injected or 0.0
    lost, back = (
        {event["learner"] for event in history.tape.of(name, node=SYNCER) if start - 0.1 < event.t < start + _BACK_S}
        for name in ("lost", "hello"))
    missing = [name for name in history.plan.cluster.names if name not in lost & back]
    if missing:
        return False, f"{', '.join(missing)} did not lose its connection and come back"
    return True, f"links down for {show_seconds(float(span.observed.get('down_s', 0.0)))}; every connection made again"


def engine_restarted(history: History, span: Span) -> tuple[bool, str]:
    """Nothing was recorded any more: the run ended there."""
    start = span.injected or 0.0
    last = max((event.t for event in history.tape.events if event.node != "harness"), default=start)
    ended = [event for event in history.tape.of("end", node="harness") if "engine" in str(event["message"])]
    return bool(ended), f"the run broke off; last event {show_seconds(max(0.0, last - start))} after it"
