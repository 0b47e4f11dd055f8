"""Nodes that limp: alive, connected, and slower than the others."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from faults.base import Fault, Felt, Hit, names
from harness.cluster.base import Ability
from harness.units import show_seconds


class Straggler(Fault):
    """The node runs only a share of the time. What it felt is its rate of inner steps, which the tape tells."""

    needs: ClassVar[frozenset[Ability]] = frozenset({"throttle"})

    kind: Literal["straggler"] = "straggler"
    factor: float = Field(0.25, gt=0, lt=1)
    """Speed while it lasts, as a share of nominal."""

    def inject(self, hit: Hit) -> Felt:
        """Slow every target down."""
        for target in self.targets:
            hit.cluster.throttle(target, self.factor)
        return {"ok": True}

    def undo(self, hit: Hit) -> Felt:
        """Full speed again."""
        for target in self.targets:
            hit.cluster.throttle(target, None)
        return {}

    def words(self) -> str:
        """What it does, for people."""
        return f"{names(self.targets)} at {self.factor:.0%} speed for {show_seconds(self.duration or 0)}"

    def downtime(self) -> float:
        """The share of the time that is gone."""
        return (1 - self.factor) * (self.duration or 0)
