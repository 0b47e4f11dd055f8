"""Virtual time: what is to happen, in order. Everything that a simulation leaves to chance is drawn here."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from typing import Any


class World:
    """A clock that jumps from one happening to the next. Two at the same time come in the order in which they were
    planned, so that a seed gives one course of events, in any process."""

    def __init__(self, seed: int | str) -> None:
        self.now = 0.0
        """Seconds since the run began."""
        self.chance = random.Random(seed)
        self._draw = self.chance.random
        self._planned: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._count = 0
        self._stopped = False

    def at(self, when: float, action: Callable[..., None], *arguments: Any) -> None:
        """Call `action` then; at once, as the next thing, where that has passed."""
        self._count += 1
        heapq.heappush(self._planned, (when if when > self.now else self.now, self._count, action, arguments))

    def after(self, seconds: float, action: Callable[..., None], *arguments: Any) -> None:
        """Call `action` so much later."""
        self._count += 1
        heapq.heappush(self._planned, (self.now + seconds, self._count, action, arguments))

    def run(self, until: float) -> None:
        """Let everything happen up to then (seconds), or up to a `stop`."""
        planned, pop = self._planned, heapq.heappop
        self._stopped = False
        while planned and planned[0][0] <= until and not self._stopped:
            self.now, _, action, arguments = pop(planned)
            action(*arguments)
        if not self._stopped and until > self.now:
            self.now = until

    def stop(self) -> None:
        """Somebody must look: `run` returns after what happens now."""
        self._stopped = True

    def near(self, value: float, spread: float) -> float:
        """A draw from value ± spread, uniform, never negative."""
        if not spread:
            return value
        drawn = value + spread * (2 * self._draw() - 1)
        return drawn if drawn > 0 else 0.0
