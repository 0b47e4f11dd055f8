"""What strangers send is told on the tape, but neither at any length nor any number of times: a flood is summed up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

STRANGER = "unknown"
"""A peer that has shown no token."""
LONGEST = 200
"""Characters of a reason."""
MOST, WINDOW_S = 20, 10.0
"""Refusals that are told one by one in so many seconds."""


class Refusals:
    """Writes them down."""

    def __init__(self, record: Callable[..., None], clock: Callable[[], float]) -> None:
        self._record, self._clock = record, clock
        self._since = float("-inf")
        self._told = self._more = 0

    def tell(self, event: str, peer: str, **fields: Any) -> None:
        """One more, as this event; if it is a stranger's, as one of many where there are many."""
        fields = {name: value[:LONGEST] if isinstance(value, str) else value for name, value in fields.items()}
        if peer != STRANGER:
            self._record(event, peer=peer, **fields)
            return
        now = self._clock()
        if now - self._since >= WINDOW_S:
            self.sum_up()
            self._since, self._told = now, 0
        if self._told < MOST:
            self._told += 1
            self._record(event, peer=peer, **fields)
        else:
            self._more += 1

    def sum_up(self) -> None:
        """Tell how many were not told one by one."""
        if self._more:
            self._record("refused_frame", peer=STRANGER, more=self._more,
                         reason=f"{self._more} more refusals than the {MOST} that are told in {WINDOW_S:g} s")
        self._more = 0
