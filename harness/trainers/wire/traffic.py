"""What crosses a node's sockets: bytes by direction and by purpose, which is the type of the message."""

from __future__ import annotations

from collections import Counter

TOLD_AT = "steady"
"""Beside snapshots and the end: the event at which it is told, so that what it takes to begin can be told apart."""


class Traffic:
    """Whole frames, headers included; running totals of one process, which it writes to its tape now and then."""

    def __init__(self) -> None:
        self.sent: Counter[str] = Counter()
        self.received: Counter[str] = Counter()

    def fields(self) -> dict[str, dict[str, int]]:
        """For the tape's `traffic`."""
        return {"sent": dict(self.sent), "received": dict(self.received)}
