"""How long a learner waits before it tries to connect again. Pure."""

from __future__ import annotations

import random

FIRST_DELAY_S, LONGEST_DELAY_S = 0.05, 0.8
CONNECT_S = 1.5
"""A name that nobody resolves, or an address where packets vanish, would hold up an attempt for many seconds."""


class Backoff:
    """Doubles with every failure, up to a limit; a connection on which anything was heard begins anew."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._delay = FIRST_DELAY_S

    def refused(self) -> float:
        """Seconds to wait after an attempt that failed."""
        waits = self._varied()
        self._delay = min(2 * self._delay, LONGEST_DELAY_S)
        return waits

    def lost(self, heard: bool) -> float:
        """Seconds to wait after a connection that stood; `heard`: whether anything came through it."""
        self._delay = FIRST_DELAY_S if heard else min(2 * self._delay, LONGEST_DELAY_S)
        return self._varied()

    def _varied(self) -> float:
        return self._delay * self._chance.uniform(0.8, 1.2)
