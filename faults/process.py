"""Faults of processes: what a machine does to a node that it loses, stops, or believes to be lost."""

from __future__ import annotations

from typing import ClassVar, Literal

from faults.base import Fault, FaultContext, Observation, names
from harness.cluster.base import Ability
from harness.units import Seconds, show_seconds

TYPICAL_START_S = 3.0
"""What a new process needs until it trains, for the predicted availability only."""


class Ending(Fault):
    """The process ends. The cluster's restart policy brings the node back: there is no undo that could race it. What is
    observed is the exit status that the kernel reported; the tape has it."""

    reversible: ClassVar[bool] = False
    stops_target: ClassVar[bool] = True
    frees: ClassVar[bool] = True
    gently: ClassVar[bool] = False
    """Whether it is asked to end, or ended."""

    restart_after: Seconds | None = None
    """From its end until the cluster starts it again; none: it stays dead."""

    def inject(self, hit: FaultContext) -> Observation:
        """End every target."""
        end = hit.cluster.terminate if self.gently else hit.cluster.kill
        for target in self.targets:
            end(target, self.restart_after)
        return {}

    def describe(self) -> str:
        """What it does, for people."""
        return f"{self.kind} {names(self.targets)}{self.back()}"

    def expected_lost_time(self) -> float:
        """Until it trains again."""
        return float("inf") if self.restart_after is None else self.restart_after + TYPICAL_START_S

    def expected_duration(self) -> float | None:
        """Until it is started again."""
        return self.restart_after

    def back(self) -> str:
        """When it is started again, for people."""
        return "" if self.restart_after is None else f", back after {show_seconds(self.restart_after)}"


class Kill(Ending):
    """SIGKILL: no last word."""

    needs: ClassVar[frozenset[Ability]] = frozenset({"kill", "restart"})

    kind: Literal["kill"] = "kill"


class Terminate(Ending):
    """SIGTERM: the node may end in good order; SIGKILL follows where it does not."""

    needs: ClassVar[frozenset[Ability]] = frozenset({"terminate", "restart"})
    gently: ClassVar[bool] = True

    kind: Literal["terminate"] = "terminate"


class Restart(Ending):
    """SIGTERM, and started again at once: an upgrade, or an operator's habit."""

    needs: ClassVar[frozenset[Ability]] = frozenset({"terminate", "restart"})
    gently: ClassVar[bool] = True

    kind: Literal["restart"] = "restart"
    restart_after: Seconds = 0.0

    def back(self) -> str:
        """At once: that is what it is for."""
        return ""


class Join(Fault):
    """A learner that was not there from the beginning: the cluster grows while training goes on."""

    needs: ClassVar[frozenset[Ability]] = frozenset({"join"})
    reversible: ClassVar[bool] = False
    target_role: ClassVar[str] = "learner"

    kind: Literal["join"] = "join"
    restart_after: ClassVar[float] = 0.0  # it has to be merged from, as after a kill

    def inject(self, hit: FaultContext) -> Observation:
        """Start every target."""
        for target in self.targets:
            hit.cluster.join(hit.spec(target))
        return {}

    def describe(self) -> str:
        """What it does, for people."""
        return f"{names(self.targets)} {'joins' if len(self.targets) == 1 else 'join'}"

    def expected_lost_time(self) -> float:
        """Until it trains, from the steady state on."""
        return (self.at or 0.0) + TYPICAL_START_S


class Pause(Fault):
    """SIGSTOP, and SIGCONT at the end: a process that the machine forgets. With `when: {failpoint: upload.half}` it
    stands still in the middle of an upload."""

    needs: ClassVar[frozenset[Ability]] = frozenset({"pause"})
    frees: ClassVar[bool] = True

    kind: Literal["pause"] = "pause"

    def inject(self, hit: FaultContext) -> Observation:
        """Stop every target."""
        for target in self.targets:
            hit.cluster.pause(target)
        return {}

    def undo(self, hit: FaultContext) -> None:
        """Let them go on."""
        for target in self.targets:
            hit.cluster.resume(target)

    def describe(self) -> str:
        """What it does, for people."""
        return f"pause {names(self.targets)} {self.describe_duration()}"

    def expected_lost_time(self) -> float:
        """It does nothing meanwhile."""
        return self.duration or 0.0


class Zombie(Fault):
    """A stale incarnation: the process stands still, its successor is started beside it, and then it comes back."""

    needs: ClassVar[frozenset[Ability]] = frozenset({"supersede"})
    target_role: ClassVar[str] = "learner"

    kind: Literal["zombie"] = "zombie"
    restart_after: ClassVar[float] = 0.0  # the successor has to take its place, as after a kill

    def inject(self, hit: FaultContext) -> Observation:
        """Stop the old ones, start the new ones."""
        for target in self.targets:
            hit.cluster.supersede(target)
        return {}

    def undo(self, hit: FaultContext) -> None:
        """Let the old ones go on: they must see that they are not wanted, and end."""
        for target in self.targets:
            hit.cluster.revive(target)

    def describe(self) -> str:
        """What it does, for people."""
        return f"supersede {names(self.targets)}, whose old process comes back after {show_seconds(self.duration or 0)}"

    def expected_lost_time(self) -> float:
        """Until the successor trains."""
        return TYPICAL_START_S
