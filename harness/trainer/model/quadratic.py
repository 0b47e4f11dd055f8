"""A model whose optimum is known: a quadratic with noisy gradients. A step takes microseconds, so that thousands of
runs can be made; what is merged, lost and carried is as with any other model."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar, TypeAlias

from diloco_chaos.harness.base.tensors import Tensors, np
from diloco_chaos.harness.record.tape.events import MemoryPart
from diloco_chaos.harness.trainer.algorithm.fragments import Shape
from diloco_chaos.harness.trainer.model.replica import GRADIENT, VALUE, StepEvidence

if TYPE_CHECKING:  # see harness/base/tensors.py
    from numpy.typing import NDArray

FLOOR = 1.0
"""Loss at the optimum."""
_BATCHES = 512  # different batches of a learner's shard; then they repeat
_NOISE = 1.0
_GENTLEST, _STEEPEST = 2.0, 40.0
Vector: TypeAlias = "NDArray[np.float32]"


@dataclass(frozen=True)
class QuadraticSpec:
    """Shapes and initial values; see `diloco_chaos.harness.trainer.model.spec.ModelSpec`."""

    width: int
    blocks: int
    context: int
    loss_unit: ClassVar[str] = "(floor 1.0)"

    def shapes(self) -> dict[str, Shape]:
        """Two tables and some square matrices, all of the same size."""
        size = self.width * self.width
        return {"embed.token": (size,), "embed.position": (size,),
                **{f"block{index}.weight": (self.width, self.width) for index in range(self.blocks)}}

    def embeddings(self) -> frozenset[str]:
        """Tensors that are merged by plain weighted average."""
        return frozenset({"embed.token", "embed.position"})

    def initial(self, seed: int) -> Tensors:
        """Normal with deviation 1."""
        random = np.random.default_rng(seed)
        return {name: random.standard_normal(shape).astype(np.float32) for name, shape in self.shapes().items()}


@lru_cache(maxsize=64)
def _problem(size: int, seed: int) -> tuple[Vector, Vector]:
    """(curvature, optimum) of every coordinate."""
    random = np.random.default_rng((seed, 1))
    curvature = np.geomspace(_GENTLEST, _STEEPEST, size).astype(np.float32)
    return random.permutation(curvature), random.standard_normal(size).astype(np.float32)


@lru_cache(maxsize=256)
def _batches(size: int, seed: int, learner: int) -> Vector:
    """Noise of the gradients of a learner's batches, (batches, coordinates)."""
    random = np.random.default_rng((seed, 2, learner))
    return (_NOISE * random.standard_normal((_BATCHES, size))).astype(np.float32)


class Quadratic:
    """Loss 1 + mean(c (x - o)^2) / 2; inner optimizer: gradient descent.

    Implements `diloco_chaos.harness.trainer.model.replica.Replica`.
    """

    def __init__(self, spec: QuadraticSpec, values: Tensors, seed: int, learner: int) -> None:
        """`values`: every tensor's first value; `learner`: whose batches, counted from 0."""
        sizes = {name: math.prod(shape) for name, shape in spec.shapes().items()}
        total = sum(sizes.values())
        self._values = np.empty(total, np.float32)
        self._curvature, self._optimum = _problem(total, seed)
        self._noise = _batches(total, seed, learner)
        self._of: Tensors = {}
        start = 0
        for name, shape in spec.shapes().items():
            self._of[name] = self._values[start:start + sizes[name]].reshape(shape)
            start += sizes[name]
        self.write(values)

    def read(self, names: tuple[str, ...]) -> Tensors:
        """Copies of these tensors."""
        return {name: self._of[name].copy() for name in names}

    def write(self, tensors: Tensors) -> None:
        """Overwrite these tensors."""
        for name, array in tensors.items():
            self._of[name][...] = array

    def train(self, position: int, lr: float) -> float:
        """One step down the noisy gradient; NaN, and no step, where loss or gradient are not finite."""
        loss, slope = self._slope(position)
        if not (math.isfinite(loss) and np.isfinite(slope).all()):
            return math.nan
        self._values -= np.float32(lr) * slope
        return loss

    def _slope(self, position: int) -> tuple[float, Vector]:
        with np.errstate(over="ignore", invalid="ignore"):  # memory that fails holds anything
            ahead = self._values - self._optimum
            slope = self._curvature * ahead
            loss = FLOOR + float(ahead.dot(slope)) / (2 * ahead.size)
        slope += self._noise[position % _BATCHES]
        return loss, slope

    def gradient(self, position: int) -> tuple[float, Tensors]:
        """Loss and gradient of one batch, flat."""
        loss, slope = self._slope(position)
        return loss, {GRADIENT: slope}

    def apply(self, gradient: Tensors, lr: float) -> None:
        """One step with a given gradient."""
        self._values -= np.float32(lr) * gradient[GRADIENT]

    def state(self) -> Tensors:
        """The weights; gradient descent has nothing else."""
        return {VALUE + name: array for name, array in self.read(tuple(self._of)).items()}

    def load(self, state: Tensors) -> None:
        """Go on from there."""
        self.write({name.removeprefix(VALUE): array for name, array in state.items()})

    def damage(self, part: MemoryPart, change: Callable[[Vector], None]) -> None:
        """The weights; gradient descent has no moments."""
        if part == "weights":
            change(self._values)

    def evidence(self) -> StepEvidence | None:
        """None: gradient descent keeps nothing, and every step of it can be computed again from the event log."""
        return None

    def held_out_loss(self) -> float:
        """The loss itself."""
        ahead = self._values - self._optimum
        return FLOOR + float(ahead.dot(self._curvature * ahead)) / (2 * ahead.size)
