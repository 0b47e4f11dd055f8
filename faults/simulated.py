"""Faults that only a simulation has: power that is lost between a write and its fsync, clocks that jump."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from diloco_chaos.faults.base import RETURNS, Drawn, Fault, FaultContext, Observation
from diloco_chaos.faults.evidence import Effect, Evidence, Injection
from diloco_chaos.faults.processes.process import Killed
from diloco_chaos.harness.base.units import Seconds, names, show_seconds
from diloco_chaos.harness.places.base import Ability
from diloco_chaos.harness.places.capabilities import Clocks, Power


class PowerLoss(Killed):
    """A kill that takes with it what was written and not yet on stable storage."""

    needs: ClassVar[frozenset[Ability]] = frozenset({"lose_power", "restart"})
    drawn = Drawn(30, {"restart_after": RETURNS}, at_failpoints=True, family="ends")

    kind: Literal["power_loss"] = "power_loss"

    def inject(self, hit: FaultContext) -> Observation:
        """End every target."""
        for target in self.targets:
            hit.having(Power).lose_power(target, self.restart_after)
        return {}

    def describe(self) -> str:
        """Return what the fault does, in words for people."""
        return f"power loss of {names(self.targets)}{self.back()}"


class ClockJump(Fault):
    """The clock that a node sees goes forward at once, as when its machine was suspended and nobody told it."""

    needs: ClassVar[frozenset[Ability]] = frozenset({"jump_clock"})
    reversible: ClassVar[bool] = False
    moves_clock: ClassVar[bool] = True
    drawn = Drawn(240, {"by": ("200ms", "1s", "5s")}, family="clock")

    kind: Literal["clock_jump"] = "clock_jump"
    by: Seconds = Field(1.0, gt=0, le=60)

    def inject(self, hit: FaultContext) -> Observation:
        """Set it forward."""
        for target in self.targets:
            hit.having(Clocks).jump_clock(target, self.by)
        return {"jumped_s": self.by}

    def verify(self, run: Evidence, on: Injection) -> Effect:
        """The node went on with another clock; it says so itself."""
        by = float(on.observed.get("jumped_s", 0.0))
        return Effect(by > 0, f"its clock is {show_seconds(by)} ahead")

    def describe(self) -> str:
        """Return what the fault does, in words for people."""
        return f"clock of {names(self.targets)} jumps {show_seconds(self.by)} ahead"
