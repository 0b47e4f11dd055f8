"""What a fault was meant to do beside what was observed of it; each fault knows itself how the tape shows that."""

from __future__ import annotations

from typing import NamedTuple

from diloco_chaos.chaos.evidence.history import History, Span
from diloco_chaos.faults import Fault
from diloco_chaos.harness.record.tape.events import Event, Failpoint, FailpointPassed, Unsighted


class InjectionResult(NamedTuple):
    """Requested and observed, side by side."""

    ok: bool
    requested: str
    observed: str
    reacted: bool = True
    """Whether the trainer did about it what it must."""


def measure(history: History, span: Span) -> InjectionResult:
    """Return what came of one fault, by the tape."""
    fault = span.planned.fault
    if span.injected is None:
        never = f"never came: {fault.describe_trigger()}{_counted(history, fault) or _sighted(history, span)}"
        return InjectionResult(False, span.planned.describe(), never)
    if not span.done:
        return InjectionResult(False, span.planned.describe(), "the injection was not recorded to its end")
    try:
        ok, words, reacted = fault.verify(history, span)
    except Exception as error:  # another package's fault may raise anything
        return InjectionResult(False, span.planned.describe(), f"`verify` of {fault.kind} raised "
                                                               f"{type(error).__name__}: {error}")
    if not span.observed.get("ok", True):
        reasons = (str(span.observed.get(key, "")) for key in ("why", "error"))
        ok, words = False, "; ".join(filter(None, [words, *(why for why in reasons if why not in words)]))
    return InjectionResult(ok, span.planned.describe(), words, reacted)


def never_seen(history: History, span: Span) -> bool:
    """Return whether a fault never came because nothing of what it waits for was there in the steady state."""
    unsighted = _unsighted(history, span)
    return span.injected is None and (_times(history, span.planned.fault) == 0
                                      or (unsighted is not None and unsighted.count == 0))


def _times(history: History, fault: Fault) -> int | None:
    """Return how often that was there which a fault waited for the n-th time of; None: it did not wait for that."""
    when = fault.when
    if when is None or when.sights or not when.empty or history.zero is None:
        return None
    if when.failpoint:
        events: list[Event] = [event for event in history.tape.of(Failpoint, FailpointPassed, node=when.node)
                               if event.point == when.failpoint]
    else:
        events = history.tape.named(str(when.event), node=when.node)
    return sum(event.t >= history.zero for event in events)


def _counted(history: History, fault: Fault) -> str:
    """Return how near a fault came, in words, where it waited for the n-th time of something; else empty."""
    times = _times(history, fault)
    return "" if times is None else f"; there {'was 1' if times == 1 else f'were {times}'}"


def _unsighted(history: History, span: Span) -> Unsighted | None:
    return next((event for event in history.tape.of(Unsighted) if event.fault == span.planned.id), None)


def _sighted(history: History, span: Span) -> str:
    """Return how near a fault came that waited for a line or a file, in words; else empty."""
    event = _unsighted(history, span)
    if event is None:
        return ""
    times = "there was 1" if event.count == 1 else f"there were {event.count}"
    near = ", ".join(map(repr, event.nearest))
    return f"; {times} since the steady state in {event.looked_in}; " + (
        f"the nearest there: {near}" if near else "nothing else is there")
