"""What changes as training goes on, as a function of the tokens that all learners together have processed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class RateSchedule:
    """The schedule of one run; numbers as a scenario gives them, rates as AdamW and the outer optimizer take them."""

    batches: Sequence[int]
    """Sequences that each learner takes in a step."""
    context: int
    """Tokens of a sequence."""
    budget: int
    """Steps of each learner, those of the warm start among them."""
    warm_start: int
    warmup: int
    """Steps in which the inner rate rises."""
    peak: float
    """Inner rate where it is highest."""
    final: float
    """The inner rate at the end, as a share of the peak."""
    outer_rate: float
    momentum: float
    momentum_ramp: int
    """Steps after the warm start in which the outer momentum rises."""

    @property
    def step(self) -> int:
        """Tokens of one step of every learner."""
        return self.context * sum(self.batches)

    @property
    def budget_tokens(self) -> int:
        """Tokens with which training is over."""
        return self.budget * self.step

    @property
    def warm_tokens(self) -> int:
        """Tokens of the warm start, which count as processed from the beginning."""
        return self.warm_start * self.step

    def inner_rate(self, tokens: NDArray[np.float64]) -> NDArray[np.float64]:
        """The rates of steps that are begun when so many tokens are known to be processed."""
        steps = tokens / self.step
        rising = self.peak * (1 + steps) / (1 + self.warmup)
        done = np.clip((steps - self.warmup) / max(1, self.budget - self.warmup), 0, 1)
        falling = self.peak * (self.final + (1 - self.final) * 0.5 * (1 + np.cos(np.pi * done)))
        return np.where(steps < self.warmup, rising, falling)

    def inner_rates(self, least: NDArray[np.float64],
                    most: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The lowest and the highest rate where the count of tokens lies between these: it rises, and then falls."""
        first, last, top = self.inner_rate(least), self.inner_rate(most), self.warmup * self.step
        over = (least <= top) & (top <= most)
        return np.minimum(first, last), np.where(over, self.peak, np.maximum(first, last))

    def outer(self, tokens: float) -> tuple[float, float]:
        """Outer rate and momentum of a merge. While the momentum rises, rate / (1 - momentum) stands."""
        ramp = self.momentum_ramp * self.step
        if not ramp or tokens - self.warm_tokens >= ramp:
            return self.outer_rate, self.momentum
        now = self.momentum * max(tokens - self.warm_tokens, 0) / ramp
        return self.outer_rate * (1 - now) / (1 - self.momentum), now
