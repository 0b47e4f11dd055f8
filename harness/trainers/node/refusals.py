"""What strangers send is recorded, but neither at any length nor any number of times: a flood is summed up."""

from __future__ import annotations

from collections.abc import Callable

from diloco_chaos.harness.record.tape.events import Event, PartialFrame, RefusedFrame

STRANGER = "unknown"
"""A peer that has shown no token."""
LONGEST = 200
"""Characters of a reason."""
MOST, WINDOW_S = 20, 10.0
"""Refusals that are recorded one by one in so many seconds."""


class Refusals:
    """Writes them down."""

    def __init__(self, record: Callable[[Event], None], clock: Callable[[], float]) -> None:
        self._record, self._clock = record, clock
        self._since = float("-inf")
        self._recorded = self._more = 0

    def record(self, event: RefusedFrame | PartialFrame) -> None:
        """One more; if it is a stranger's, as one of many where there are many."""
        if isinstance(event, RefusedFrame):
            event.reason = event.reason[:LONGEST]
        if event.peer != STRANGER:
            self._record(event)
            return
        now = self._clock()
        if now - self._since >= WINDOW_S:
            self.sum_up()
            self._since, self._recorded = now, 0
        if self._recorded < MOST:
            self._recorded += 1
            self._record(event)
        else:
            self._more += 1

    def sum_up(self) -> None:
        """Record how many were not recorded one by one."""
        if self._more:
            why = f"{self._more} more refusals than the {MOST} that are told in {WINDOW_S:g} s"
            self._record(RefusedFrame(peer=STRANGER, more=self._more, reason=why))
        self._more = 0
