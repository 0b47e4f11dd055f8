"""Keeps the pace of a learner: when its next inner step may begin."""

from __future__ import annotations


class Metronome:
    """A nominal time per inner step; a step that computes faster waits. Lateness of up to a step is made up for."""

    def __init__(self, step_time: float) -> None:
        """`step_time`: seconds; 0 for no pace."""
        self._step_time = step_time
        self._at: float | None = None  # when the step under way should have begun

    def next(self, now: float) -> float:
        """When the next step begins, never before now."""
        planned = now if self._at is None else self._at + self._step_time
        if now - planned > self._step_time:
            planned = now
        self._at = planned
        return max(planned, now)
