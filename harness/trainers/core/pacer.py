"""Keeps the pace of a learner: when its next inner step may begin."""

from __future__ import annotations

import random


class Metronome:
    """A nominal time per inner step; a step that computes faster waits. Lateness of up to a step is made up for."""

    def __init__(self, step_time: float, variance: float = 0.0, seed: str = "") -> None:
        """`step_time`: seconds; 0 for no pace. Each step takes up to `variance` (a share) more or less, drawn from
        `seed`."""
        self._step_time, self._variance = step_time, variance
        self._chance = random.Random(seed)
        self._at: float | None = None  # when the step under way should have begun

    def next(self, now: float) -> float:
        """Return when the next step begins, never before now."""
        takes = self._step_time * (1 + self._variance * self._chance.uniform(-1, 1) if self._variance else 1)
        planned = now if self._at is None else self._at + takes
        if now - planned > self._step_time:
            planned = now
        self._at = planned
        return max(planned, now)
