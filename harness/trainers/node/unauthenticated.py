"""Connections whose peer has not said who it is. There may be only so many of them, and not for long, so that strangers
take neither memory nor descriptors that the run needs. Pure."""

from __future__ import annotations

HELLO_S = 5.0
"""A first frame with the run's token is due within so long."""
MOST = 64
"""Connections that wait for it at the same time; then the oldest has to go."""


class Lobby:
    """The connections that wait to be admitted, the oldest first."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._waiting: dict[int, None] = {}

    def enter(self, connection: int) -> int | None:
        """One more has come; who has to go for it."""
        self._waiting[connection] = None
        if len(self._waiting) <= self._most:
            return None
        oldest = next(iter(self._waiting))
        del self._waiting[oldest]
        return oldest

    def leave(self, connection: int) -> None:
        """It was admitted, or is gone."""
        self._waiting.pop(connection, None)
