"""A mean of what was measured lately, that one sample can't carry away. Pure."""

from __future__ import annotations

_OUTLIER = 4.0


class MovingAverage:
    """Exponential moving average; None before the first sample.

    A sample counts as four times the average at most: one that was taken while the process stood still would otherwise
    close the grace window for seconds afterwards.
    """

    def __init__(self, weight: float = 0.1) -> None:
        self._weight = weight
        self.value: float | None = None

    def add(self, sample: float) -> None:
        """Take one more sample."""
        if self.value is None:
            self.value = sample
        else:
            self.value += self._weight * (min(sample, _OUTLIER * self.value) - self.value)
