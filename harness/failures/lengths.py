"""How long something takes: the exponentiated Weibull distribution, of which Weibull and exponential are cases, or the
lognormal one.

The first one's distribution function is F(t) = (1 - exp(-(t / scale) ** shape)) ** exponent (Mudholkar and Srivastava,
1993).
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_PARTS = 1 << 14
"""Equal shares of the distribution, each with one length: what has no closed form is a mean over these."""


class Lengths(NamedTuple):
    """Lengths of time in seconds, drawn independently of each other."""

    mean_s: float
    shape: float = 1.0
    """Below 1 most are short and a few are very long; 1 with `exponent` 1: exponential."""
    exponent: float = 1.0
    """1: Weibull. Above 1 hardly any is as short as nothing."""
    sigma: float = 0.0
    """Above 0 it is lognormal instead: the standard deviation of the logarithm."""

    def whole(self, size: int, chance: np.random.Generator) -> Floats:
        """Draw lengths from their beginning on, of shape (size,)."""
        if self.sigma:
            return chance.lognormal(math.log(self.mean_s) - self.sigma ** 2 / 2, self.sigma, size)
        if self.exponent != 1:
            return self._scale() * _quantiles(chance.random(size), self.shape, self.exponent)
        if self.shape == 1:
            return chance.exponential(self.mean_s, size)
        return self._scale() * chance.weibull(self.shape, size)

    def left(self, size: int, chance: np.random.Generator) -> Floats:
        """Draw what is left of a length at any moment in it (the stationary renewal process), of shape (size,): a
        uniform part of a length that is drawn in proportion to itself. Of a Weibull variable x that is drawn so,
        x^shape is a gamma variable; a lognormal one's logarithm has a mean that is higher by sigma^2."""
        if self.sigma:
            return chance.random(size) * chance.lognormal(math.log(self.mean_s) + self.sigma ** 2 / 2, self.sigma, size)
        if self.exponent != 1:
            lengths = _grid(self.shape, self.exponent)
            drawn: Floats = chance.choice(lengths, size, p=lengths / lengths.sum())
            return chance.random(size) * self._scale() * drawn
        if self.shape == 1:
            return chance.exponential(self.mean_s, size)
        drawn = chance.standard_gamma(1 + 1 / self.shape, size) ** (1 / self.shape)
        return chance.random(size) * self._scale() * drawn

    def cumulative(self, lasts: Floats) -> Floats:
        """Return the shares of lengths that are no longer than these, of the same shape."""
        if self.sigma:
            logs = np.log(np.maximum(lasts, np.finfo(float).tiny) / self.mean_s) / self.sigma + self.sigma / 2
            return np.array([(1 + math.erf(value / math.sqrt(2))) / 2 for value in logs.tolist()])
        shares: Floats = -np.expm1(-(lasts / self._scale()) ** self.shape)
        return shares ** self.exponent

    def survives(self, rate: float) -> float:
        """Return the probability that none of `rate` events a second, without memory, comes in a length: its Laplace
        transform."""
        if self.exponent == 1 and self.shape == 1:
            return 1 / (1 + rate * self.mean_s)
        return float(np.exp(-rate * self._scale() * _grid(self.shape, self.exponent)).mean())

    def _scale(self) -> float:
        if self.exponent == 1:
            return self.mean_s / math.gamma(1 + 1 / self.shape)
        return self.mean_s / float(_grid(self.shape, self.exponent).mean())


def _quantiles(shares: Floats, shape: float, exponent: float) -> Floats:
    """Return the lengths, of scale 1, below which these shares are."""
    within: Floats = (-np.log1p(-shares ** (1 / exponent))) ** (1 / shape)
    return within


@lru_cache(maxsize=8)
def _grid(shape: float, exponent: float) -> Floats:
    """Return a length, of scale 1, for each of many equal shares of the distribution: its middle."""
    return _quantiles((np.arange(_PARTS) + 0.5) / _PARTS, shape, exponent)
