"""The quadratic model, as docs/protocol.md has it: 128 values in eight tensors of 4 x 4."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float32]
Array = NDArray[np.float32]
Tensors = dict[str, Array]

SIDE, BLOCKS = 4, 6
FLOOR = 1.0
"""No loss is less."""
TABLES = ("embed.token", "embed.position")
"""The embeddings, which are merged by their average."""
SHAPES: dict[str, tuple[int, ...]] = {**dict.fromkeys(TABLES, (SIDE * SIDE,)),
                                      **{f"block{number}.weight": (SIDE, SIDE) for number in range(BLOCKS)}}
_SIZE = SIDE * SIDE
_BATCHES = 512
_FLATTEST, _STEEPEST = 2.0, 40.0


def initial(seed: int) -> Tensors:
    """Return every tensor's first value: standard normal."""
    chance = np.random.default_rng(seed)
    return {name: chance.standard_normal(shape).astype(np.float32) for name, shape in SHAPES.items()}


@lru_cache(maxsize=64)
def _noise(seed: int, learner: int, count: int) -> NDArray[np.float32]:
    """Return the noise of a learner's batches, (batches, values)."""
    return np.random.default_rng((seed, 2, learner)).standard_normal((_BATCHES, count)).astype(np.float32)


class Weights:
    """The weights that one learner trains: gradient descent on 1 + mean(c (x - o)^2) / 2 with noise of its own."""

    def __init__(self, seed: int, learner: int) -> None:
        """`learner`: counted from 0."""
        count = _SIZE * len(SHAPES)
        chance = np.random.default_rng((seed, 1))
        self._curvature = chance.permutation(np.geomspace(_FLATTEST, _STEEPEST, count).astype(np.float32))
        self._optimum = chance.standard_normal(count).astype(np.float32)
        self._noise = _noise(seed, learner, count)
        self.flat: Vector = np.zeros(count, np.float32)
        places = range(0, count, _SIZE)
        self._views = {name: self.flat[start:start + _SIZE].reshape(shape)
                       for start, (name, shape) in zip(places, SHAPES.items(), strict=True)}

    def step(self, batch: int, rate: float) -> float:
        """One step; the loss before it. NaN, and no step, where anything is not finite."""
        with np.errstate(all="ignore"):
            loss, pull = self._at(self.flat)
            slope = pull + self._noise[batch % _BATCHES]
        if not (np.isfinite(loss) and np.isfinite(slope).all()):
            return float("nan")
        self.flat -= np.float32(rate) * slope
        return loss

    def loss(self, values: Vector) -> float:
        """There, without noise."""
        return self._at(values)[0]

    def slope(self, values: Vector, batch: int) -> Vector:
        """The gradient there, with the noise of this batch."""
        slope: Vector = self._at(values)[1] + self._noise[batch % _BATCHES]
        return slope

    def _at(self, values: Vector) -> tuple[float, Vector]:
        """Loss and gradient there, without noise."""
        away = values - self._optimum
        pull = self._curvature * away
        return FLOOR + float(np.dot(away, pull)) / (2 * len(away)), pull

    def of(self, names: tuple[str, ...]) -> Tensors:
        """Copies of some tensors."""
        return {name: self._views[name].copy() for name in names}

    def put(self, tensors: Tensors) -> None:
        """Overwrite some tensors."""
        for name, array in tensors.items():
            self._views[name][...] = array


@lru_cache(maxsize=16)
def synchronous(seed: int, shares: tuple[float, ...], rates: tuple[float, ...]) -> float:
    """The final loss of the synchronous run: in each step everybody's gradient, averaged by tokens.

    Args:
        seed: of the problem.
        shares: of each learner's tokens in a step.
        rates: of each step, in turn.
    """
    all_weights = [Weights(seed, learner) for learner in range(len(shares))]
    first = initial(seed)
    for weights in all_weights:
        weights.put(first)
    values = all_weights[0].flat
    for batch, rate in enumerate(rates):
        slope = sum(np.float32(share) * weights.slope(values, batch)
                    for share, weights in zip(shares, all_weights, strict=True))
        values = values - np.float32(rate) * slope
    return all_weights[0].loss(values)
