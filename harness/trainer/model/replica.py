"""What a learner trains: the seam between the protocol and a model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from diloco_chaos.harness.base.tensors import Array, Tensors
from diloco_chaos.harness.record.tape.events import MemoryPart

VALUE, OPTIMIZER = "value/", "adamw/"
"""Before the names of weights in a state, and of the inner optimizer's tensors. A run's *start* has weights under their
own names, and the optimizer's beside them where the run goes on from others' steps."""

GRADIENT = "gradient"
"""The name of a gradient: one flat array of the whole model's, however its parameters are called."""


def weights(start: Tensors) -> Tensors:
    """A start's weights alone."""
    return {name: array for name, array in start.items() if not name.startswith(OPTIMIZER)}


def begun(start: Tensors) -> Tensors:
    """The state that a start stands for."""
    return {name if name.startswith(OPTIMIZER) else VALUE + name: array for name, array in start.items()}


def start(state: Tensors) -> Tensors:
    """The inverse of `begun`."""
    return {name.removeprefix(VALUE): array for name, array in state.items()}


@dataclass(frozen=True)
class StepEvidence:
    """What an inner step was computed from and what came of it: see the event `inner_step`."""

    count: int
    counted: int
    batch: str
    norm: float
    values: Array
    """Float32, [7, coordinates]: weights, first and second moments and gradient before it; weights, first and second
    moments after it."""


class Replica(Protocol):
    """One learner's copy of the model, with its inner optimizer and its data."""

    def read(self, names: tuple[str, ...]) -> Tensors:
        """Copies of these tensors' current values."""
        ...

    def write(self, tensors: Tensors) -> None:
        """Overwrite these tensors; the inner optimizer's state stays."""
        ...

    def train(self, position: int, lr: float) -> float:
        """One inner step on batch `position` of this learner's shard. Returns the training loss in nats per byte; NaN
        where the loss or the gradient was not finite, and the step was therefore not taken."""
        ...

    def gradient(self, position: int) -> tuple[float, Tensors]:
        """Loss and gradient of one batch, without a step: one flat array called `GRADIENT`."""
        ...

    def apply(self, gradient: Tensors, lr: float) -> None:
        """One optimizer step with a given gradient."""
        ...

    def state(self) -> Tensors:
        """A copy of everything that training goes on from: the weights, as `VALUE` and their name, and the inner
        optimizer's own."""
        ...

    def load(self, state: Tensors) -> None:
        """The inverse of `state`; an inner optimizer of which nothing is said begins afresh."""
        ...

    def damage(self, part: MemoryPart, change: Callable[[Array], None]) -> None:
        """Let `change` alter the weights, or the inner optimizer's moments, as one flat array."""
        ...

    def evidence(self) -> StepEvidence | None:
        """Return what the newest step was computed from and came to; None where none was taken, or where the inner
        optimizer keeps nothing from step to step."""
        ...

    def held_out_loss(self) -> float:
        """Mean loss over data that nobody trains on."""
        ...
