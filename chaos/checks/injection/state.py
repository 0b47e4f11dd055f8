"""Faults of state, from what the syncer said of them."""

from __future__ import annotations

import signal

from chaos.checks.injection.base import exits, status_words
from chaos.evidence.history import History, Span
from chaos.scenario.model import SYNCER
from faults import CorruptMemory
from harness.units import show_seconds


def damaged(history: History, span: Span) -> tuple[bool, str]:
    """The syncer was killed, and its successor found what was damaged."""
    names = [name for name in str(span.observed.get("damaged", "")).split(", ") if name]
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
    full = "filled_bytes" in span.observed
    if full and "No space left" not in str(failed["reason"]):
        return False, f"a write failed for another reason: {failed['reason']}"
    what = "a write onto the full disk" if full else f"a write beyond {span.observed.get('limit_bytes')} bytes"
    return True, f"{what} failed ({failed['reason']}), exit status {status_words(gone['status'])}"


def corrupted(history: History, span: Span) -> tuple[bool, str]:
    """Every target says what happened to its memory, and what came of it."""
    fault, words = span.planned.fault, []
    assert isinstance(fault, CorruptMemory), "registered for memory that fails"
    for target in fault.targets:
        hit = next((event for event in history.tape.of("corrupted", node=target)
                    if event["fault"] == span.planned.id), None)
        if hit is None:
            return False, f"{target} went on before its memory could fail"
        reset = next((event for event in history.tape.of("reset", node=target)
                      if event.t >= hit.t and event.incarnation == hit.incarnation), None)
        what = "went on with it" if reset is None else f"dropped all that it had after {show_seconds(reset.t - hit.t)}"
        words.append(f"{target} {what}" + (f" ({reset['reason']})" if reset else ""))
    return True, f"{fault.values} {fault.part} hit; " + "; ".join(words)
