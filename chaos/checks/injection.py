"""What a fault was meant to do beside what was observed of it; each fault knows itself how the tape shows that."""

from __future__ import annotations

from typing import NamedTuple

from chaos.evidence.history import History, Span


class InjectionResult(NamedTuple):
    """Requested and observed, side by side."""

    ok: bool
    requested: str
    observed: str
    reacted: bool = True
    """Whether the trainer did about it what it must."""


def measure(history: History, span: Span) -> InjectionResult:
    """What came of one fault, from the tape."""
    fault = span.planned.fault
    if span.injected is None:
        return InjectionResult(False, fault.describe(), f"never came: {fault.describe_trigger()}")
    if not span.done:
        return InjectionResult(False, fault.describe(), "the injection was not recorded to its end")
    ok, words, reacted = fault.verify(history, span)
    if not span.observed.get("ok", True):
        ok, words = False, "; ".join(filter(None, [words, *(str(span.observed.get(key, ""))
                                                            for key in ("why", "error"))]))
    return InjectionResult(ok, fault.describe(), words, reacted)
