"""A mean of what was measured lately, that one sample can't carry away. Pure."""

from __future__ import annotations

_OUTLIER = 4.0


class MovingAverage:
    """Exponential moving average; None before the first sample.

    A sample counts as four times the average at most: one that was taken while the process stood still would otherwise
    close the grace window for seconds afterwards. So would a first one: the second takes its place where it is less
    than a quarter of it.
    """

    def __init__(self, weight: float = 0.1) -> None:
        self._weight = weight
        self._first = True
        self.value: float | None = None

    def add(self, sample: float) -> None:
        """Take one more sample."""
        if self.value is None:
            self.value = sample
            return
        if self._first and sample * _OUTLIER < self.value:
            self.value = sample
        self._first = False
        self.value += self._weight * (min(sample, _OUTLIER * self.value) - self.value)
