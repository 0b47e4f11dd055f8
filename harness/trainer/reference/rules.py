"""What of a scenario's cluster decides what is computed."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from diloco_chaos.harness.trainer.reference.codec import Rounding


@dataclass(frozen=True)
class ReferenceRules:
    """See the module."""

    learners: Sequence[str]
    seed: int
    fragments: int
    carry: bool
    """Steps made during an exchange are added on top of what is received."""
    latest: bool
    """Outer gradients are anchored at the newest version, or else at the learner's own base."""
    radial: bool
    """Radial-directional averaging, or else the plain average."""
    tables: Collection[str]
    """The embeddings, which are always merged by their average."""
    gradients: Rounding
    """Of outer gradients."""
    broadcasts: Rounding
    """Of what a merge changes."""
