"""The quadratic model, as docs/protocol.md has it: 128 values in eight tensors of 4 x 4."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float32]
Array = NDArray[np.float32]
Tensors = dict[str, Array]

SIDE, BLOCKS = 4, 6
TABLES = ("embed.token", "embed.position")
"""The embeddings, which are merged by their average."""
SHAPES: dict[str, tuple[int, ...]] = {**dict.fromkeys(TABLES, (SIDE * SIDE,)),
                                      **{f"block{number}.weight": (SIDE, SIDE) for number in range(BLOCKS)}}
_SIZE = SIDE * SIDE
_BATCHES = 512
_FLATTEST, _STEEPEST = 2.0, 40.0


def initial(seed: int) -> Tensors:
    """Every tensor's first value: standard normal."""
    chance = np.random.default_rng(seed)
    return {name: chance.standard_normal(shape).astype(np.float32) for name, shape in SHAPES.items()}


@lru_cache(maxsize=64)
def _noise(seed: int, learner: int, count: int) -> NDArray[np.float32]:
    """Of a learner's batches, (batches, values)."""
    return np.random.default_rng((seed, 2, learner)).standard_normal((_BATCHES, count)).astype(np.float32)


class Weights:
    """What one learner trains: gradient descent on 1 + mean(c (x - o)^2) / 2 with noise of its own."""

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
            away = self.flat - self._optimum
            slope = self._curvature * away
            loss = 1.0 + float(np.dot(away, slope)) / (2 * len(away))
            slope = slope + self._noise[batch % _BATCHES]
        if not (np.isfinite(loss) and np.isfinite(slope).all()):
            return float("nan")
        self.flat -= np.float32(rate) * slope
        return loss

    def of(self, names: tuple[str, ...]) -> Tensors:
        """Copies of some tensors."""
        return {name: self._views[name].copy() for name in names}

    def put(self, tensors: Tensors) -> None:
        """Overwrite some tensors."""
        for name, array in tensors.items():
            self._views[name][...] = array
