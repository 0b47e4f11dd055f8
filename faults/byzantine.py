"""Byzantine faults: somebody who has the run's token speaks in a learner's name, and says what no learner should."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from faults.base import Fault, FaultContext, Observation, names
from harness.cluster.base import Ability
from harness.trainer.protocol.byzantine import About, Content, Rogue


class Impersonation(Fault):
    """An impostor takes the targets' places in turn. The learner loses its connection to it, and takes it back."""

    needs: ClassVar[frozenset[Ability]] = frozenset({"links"})
    reversible: ClassVar[bool] = False
    target_role: ClassVar[str] = "learner"

    count: int = Field(3, ge=1, le=1000)
    """Messages per target."""

    timeout_s: ClassVar[float] = 6.0
    """As long as it may take until they are taken, per target."""

    def inject(self, hit: FaultContext) -> Observation:
        """Nothing yet: it takes its time."""
        return {}

    def observe(self, hit: FaultContext) -> Observation:
        """Send them, and say how many were taken; the syncer's tape tells what became of them."""
        sent = sum(hit.attack(self.rogue(hit, target), target, self.count, self.timeout_s) for target in self.targets)
        return {"sent": sent}

    def rogue(self, hit: FaultContext, target: str) -> Rogue:
        """Who does it."""
        raise NotImplementedError

    def expected_duration(self) -> float | None:
        """As long as it may take."""
        return self.timeout_s


class Poison(Impersonation):
    """Contributions that can't be right: values that are not finite, or tensors of the wrong size."""

    kind: Literal["poison"] = "poison"
    content: Content = "nan"
    """`nan`, `inf`, or `shape`."""

    def rogue(self, hit: FaultContext, target: str) -> Rogue:
        """One that is asked for contributions."""
        return hit.rogue(target, self.content)

    def describe(self) -> str:
        """What it does, for people."""
        what = {"nan": "NaN", "inf": "infinite", "shape": "wrongly sized"}[self.content]
        return f"{self.count} {what} contributions in the name of {names(self.targets)}"


class Lie(Impersonation):
    """Reports of absurd numbers: steps, tokens, a place in the data, or versions, beyond all that is possible."""

    kind: Literal["lie"] = "lie"
    about: About = "step"
    """`step`, `tokens`, `position` or `version`."""

    def rogue(self, hit: FaultContext, target: str) -> Rogue:
        """One that reports."""
        return hit.rogue(target, self.about)

    def describe(self) -> str:
        """What it does, for people."""
        return f"{self.count} reports of absurd {self.about.rstrip('s')}s in the name of {names(self.targets)}"
