"""Nodes that limp: alive, connected, and slower than the others."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, model_validator

from diloco_chaos.faults.base import Drawn, Fault, FaultContext, Observation
from diloco_chaos.faults.evidence import Effect, Evidence, Injection
from diloco_chaos.harness.base.units import names
from diloco_chaos.harness.places.base import Ability

_SLACK = 0.12
"""A duty cycle of a second and steps of tens of milliseconds round a straggler's speed by about so much."""


class Straggler(Fault):
    """The node runs only a share of the time. What is observed of it is its rate of inner steps, from the tape."""

    needs: ClassVar[frozenset[Ability]] = frozenset({"throttle"})
    target_role = "learner"
    occupies: ClassVar[str] = "process"
    shown_as = "slow"
    drawn = Drawn(130, {"for": ("2s", "4s", "6s"), "factor": (0.5, 0.25, 0.8)}, family="slow")

    kind: Literal["straggler"] = "straggler"
    factor: float = Field(0.25, gt=0, lt=1)
    """Speed while it lasts, as a share of nominal."""
    spread: float = Field(0.0, ge=0, lt=1)
    """The share varies by up to so much, from one period of the duty cycle to the next."""
    seed: int = Field(0, ge=0, lt=1 << 31)
    """Of that variation; a plan's freezing sets it."""

    @model_validator(mode="after")
    def _within(self) -> Straggler:
        if not 0 < self.factor - self.spread <= self.factor + self.spread < 1:
            raise ValueError(f"factor {self.factor:g} with a spread of {self.spread:g} is not between 0 and 1")
        return self

    def inject(self, hit: FaultContext) -> Observation:
        """Slow every target down."""
        for number, target in enumerate(self.targets):
            hit.cluster.throttle(target, self.factor, self.spread, self.seed + number)
        return {}

    def undo(self, hit: FaultContext) -> None:
        """Full speed again."""
        for target in self.targets:
            hit.cluster.throttle(target, None)

    def verify(self, run: Evidence, on: Injection) -> Effect:
        """The share of its nominal steps that each target took."""
        end = run.until(on)
        if not all(run.step_time(target) for target in self.targets) or end <= on.began:
            return Effect(False, "no nominal pace, or no time, to measure it against")
        rates = [run.pace(target, on.began, end) for target in self.targets]
        slack = _SLACK + self.spread / 2
        near = all(abs(rate - self.factor) <= slack and 0 < rate < (1 + self.factor) / 2 for rate in rates)
        return Effect(near, ", ".join(f"{rate:.0%} of nominal speed" for rate in rates))

    def describe(self) -> str:
        """Return what the fault does, in words for people."""
        spread = f" ± {self.spread:.0%}" if self.spread else ""
        return f"{names(self.targets)} at {self.factor:.0%}{spread} speed {self.describe_duration()}"

    def expected_lost_time(self) -> float:
        """The share of the time that is gone."""
        return (1 - self.factor) * (self.duration or 0)
