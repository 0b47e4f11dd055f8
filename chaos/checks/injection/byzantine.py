"""Byzantine faults, from what the syncer refused."""

from __future__ import annotations

from chaos.evidence.history import History, Span
from chaos.scenario.model import SYNCER
from faults import Lie, Poison
from harness.tape import Event

_REASONS = {"nan": "not finite", "inf": "not finite", "shape": "wrong shapes"}


def poisoned(history: History, span: Span) -> tuple[bool, str]:
    """So many were sent, and so many refused; that none was merged is what exactly_once says."""
    fault = span.planned.fault
    assert isinstance(fault, Poison), "registered for poison"
    sent, wanted = int(span.observed.get("sent", 0)), fault.count * len(fault.targets)
    found = [event for event in _refusals(history, span)
             if event["reason"] == _REASONS[fault.content] and event.fields.get("last") == 0]
    return sent >= wanted and len(found) > 0, f"{sent} of {wanted} sent, {len(found)} refused"


def refused(history: History, span: Span) -> tuple[bool, str]:
    """So many were sent, and so many refused as impossible."""
    fault = span.planned.fault
    assert isinstance(fault, Lie), "registered for lies"
    sent, wanted = int(span.observed.get("sent", 0)), fault.count * len(fault.targets)
    found = [event for event in _refusals(history, span) if str(event["reason"]).startswith("impossible report")]
    return sent >= wanted and len(found) > 0, f"{sent} of {wanted} sent, {len(found)} refused"


def _refusals(history: History, span: Span) -> list[Event]:
    """What the syncer refused from the targets since the fault began."""
    return [event for event in history.tape.of("refused", node=SYNCER) if event.t >= (span.injected or 0.0)
            and event.fields.get("learner") in span.planned.fault.targets]
