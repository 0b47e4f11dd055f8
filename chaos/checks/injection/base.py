"""What measuring a fault returns, and what several of them look for."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import NamedTuple

from chaos.evidence.history import History, Span
from harness.tape import Event

NEAR_S = 2.5
"""An exit within this time of a fault is its work; SIGTERM becomes SIGKILL after two seconds."""


class FeltResult(NamedTuple):
    """Requested and observed, side by side."""

    ok: bool
    requested: str
    observed: str


Measure = Callable[[History, Span], tuple[bool, str]]
"""Whether it was observed, and what, in words."""


def exits(history: History, span: Span) -> dict[str, Event]:
    """The exit of every target that the fault brought about."""
    start = span.injected or 0.0
    found: dict[str, Event] = {}
    for event in history.tape.of("exit", node="harness"):
        mine = event["target"] in span.planned.fault.targets and event.fields.get("killed")
        if mine and start - 0.1 <= event.t <= max(start, span.ended or start) + NEAR_S:
            found.setdefault(event["target"], event)
    return found


def status_words(status: int) -> str:
    """An exit status as people read it."""
    return signal.Signals(-status).name if status < 0 else str(status)
