"""What crosses a node's sockets: bytes by direction and by purpose, which is the type of the message."""

from __future__ import annotations

from collections import Counter

from diloco_chaos.harness.record.tape import events


class TrafficCounter:
    """Whole frames, headers included; running totals of one process, which it writes to its tape now and then."""

    def __init__(self) -> None:
        self.sent: Counter[str] = Counter()
        self.received: Counter[str] = Counter()

    def event(self) -> events.Traffic:
        """The totals so far, for the tape."""
        return events.Traffic(sent=dict(self.sent), received=dict(self.received))
