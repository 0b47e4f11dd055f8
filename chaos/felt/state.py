"""Faults of state, from what the syncer said of them."""

from __future__ import annotations

import signal

from chaos.felt.base import exits, status_words
from chaos.history import History, Span
from chaos.scenario import SYNCER
from faults import Poison

_REASONS = {"nan": "not finite", "inf": "not finite", "shape": "wrong shapes"}


def damaged(history: History, span: Span) -> tuple[bool, str]:
    """The syncer was killed, and its successor found what was damaged."""
    names = [name for name in str(span.felt.get("damaged", "")).split(", ") if name]
    gone = exits(history, span).get(SYNCER)
    if not names or gone is None or gone["status"] != -signal.SIGKILL:
        return False, "no file was damaged" if not names else "the syncer was not killed"
    later = [event for event in history.tape.of("repaired", "refused_checkpoint", node=SYNCER)
             if event.incarnation == gone["incarnation"] + 1]
    if any(event.event == "refused_checkpoint" for event in later):
        return True, f"{', '.join(names)} damaged; the syncer refused to go on"
    found = {event["file"]: event["reason"] for event in later}
    missed = [name for name in names if name not in found]
    if missed:
        return False, f"the syncer did not notice {', '.join(missed)}"
    return True, f"{', '.join(names)} damaged, and made good from the other copy"


def failed_write(history: History, span: Span) -> tuple[bool, str]:
    """A write of the syncer failed, and it ended for that reason."""
    start = span.injected or 0.0
    failed = next((event for event in history.tape.of("failed", node=SYNCER) if event.t > start), None)
    gone = exits(history, span).get(SYNCER)
    if failed is None or gone is None:
        return False, "no write failed" if failed is None else "the syncer did not end"
    full = "filled_bytes" in span.felt
    if full and "No space left" not in str(failed["reason"]):
        return False, f"a write failed for another reason: {failed['reason']}"
    what = "a write onto the full disk" if full else f"a write beyond {span.felt.get('limit_bytes')} bytes"
    return True, f"{what} failed ({failed['reason']}), exit status {status_words(gone['status'])}"


def poisoned(history: History, span: Span) -> tuple[bool, str]:
    """So many were sent, and so many refused; that none was merged is what exactly_once says."""
    fault, start = span.planned.fault, span.injected or 0.0
    assert isinstance(fault, Poison), "registered for poison"
    sent = int(span.felt.get("sent", 0))
    refused = [event for event in history.tape.of("refused", node=SYNCER)
               if event.fields.get("learner") in fault.targets and event["reason"] == _REASONS[fault.content]
               and event.t >= start and event.fields.get("last") == 0]
    wanted = fault.count * len(fault.targets)
    return sent >= wanted and len(refused) > 0, f"{sent} of {wanted} sent, {len(refused)} refused"
