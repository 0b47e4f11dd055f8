"""What a learner holds of each fragment, and how that is kept in a checkpoint."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from diloco_chaos.harness.base.tensors import Tensors, add, add_prefix, shapes, strip_prefix
from diloco_chaos.harness.trainer.algorithm.codec import Codec, CompressError
from diloco_chaos.harness.trainer.protocol.messages import Broadcast


@dataclass
class Held:
    """A learner's view of one fragment."""

    version: int = -1
    base: Tensors | None = None
    """Value of that version, as received."""
    steps: int = 0
    """c_steps: inner steps since it was received (with `carry`: since the last answer that was merged or dropped)."""
    answered: Tensors | None = None
    """Own value when it was last answered; None when nothing is under way."""
    answered_steps: int = 0
    answered_at: int = 0
    """The last step of what was answered."""
    error: Tensors = field(default_factory=dict)
    """What rounding has cost what it sent before it received this version; for error feedback."""
    owed: Tensors = field(default_factory=dict)
    """The same, of its newest answer: what is owed if that is merged."""

    def decoded(self, message: Broadcast, payload: Tensors, codec: Codec) -> Tensors:
        """Return the value that a broadcast carries, its digest unchecked; empty where it can't be decoded."""
        if message.base < 0:
            return payload
        if self.base is None:
            return {}
        try:
            return add(self.base, codec.unpack(payload, shapes(self.base)))
        except CompressError:
            return {}


def packed(held: Sequence[Held]) -> tuple[Tensors, list[tuple[int, int]]]:
    """Return all fragments' tensors by prefixed name, and (version, c_steps) of each; without answers in flight."""
    tensors: Tensors = {}
    for index, view in enumerate(held):
        tensors |= add_prefix(f"{index}/base/", view.base or {}) | add_prefix(f"{index}/error/", view.error)
    return tensors, [(view.version, view.steps) for view in held]


def unpacked(tensors: Tensors, fragments: Iterable[tuple[int, int]]) -> list[Held]:
    """The inverse."""
    return [Held(version, strip_prefix(f"{index}/base/", tensors) or None, steps,
                 error=strip_prefix(f"{index}/error/", tensors))
            for index, (version, steps) in enumerate(fragments)]
