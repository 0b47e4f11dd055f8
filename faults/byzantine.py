"""Byzantine faults: a process that has the run's token speaks in a learner's name, and says what no learner should."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from diloco_chaos.faults.base import Drawn, Fault, FaultContext, Observation
from diloco_chaos.faults.evidence import Effect, Evidence, Injection
from diloco_chaos.harness.base.units import names
from diloco_chaos.harness.places.base import Ability
from diloco_chaos.harness.record.tape.events import Refused
from diloco_chaos.harness.trainers.wire.impostor import About, Content, Impostor

_REASONS = {"nan": "not finite", "inf": "not finite", "shape": "wrong shapes"}


class Impersonation(Fault):
    """An impostor takes the targets' places in turn. The learner loses its connection to it, and takes it back."""

    needs: ClassVar[frozenset[Ability]] = frozenset({"links"})
    reversible: ClassVar[bool] = False
    impersonates: ClassVar[bool] = True
    target_role = "learner"

    count: int = Field(3, ge=1, le=1000)
    """Messages per target."""

    answered: ClassVar[bool] = False
    """Whether what counts as sent has been answered: then the syncer had it."""
    timeout_s: ClassVar[float] = 6.0
    """As long as it may take until they are taken, per target."""

    def inject(self, hit: FaultContext) -> Observation:
        """Do nothing yet: the fault takes its time."""
        return {}

    def observe(self, hit: FaultContext) -> Observation:
        """Send them, and say how many were taken; the syncer's tape tells what became of them."""
        sent = sum(hit.attack(self.rogue(hit, target), target, self.count, self.timeout_s) for target in self.targets)
        return {"sent": sent}

    def rogue(self, hit: FaultContext, target: str) -> Impostor:
        """Return the impostor that does it."""
        raise NotImplementedError

    def refused(self, event: Refused) -> bool:
        """Return whether this refusal is one of what was sent."""
        raise NotImplementedError

    def verify(self, run: Evidence, on: Injection) -> Effect:
        """Return how many were sent, and how many refused; that none was merged is what exactly_once says."""
        sent, wanted = int(on.observed.get("sent", 0)), self.count * len(self.targets)
        refusals = [event for event in run.tape.of(Refused, node=run.recorder) if event.t >= on.began
                    and event.learner in self.targets]
        refused = sum(map(self.refused, refusals))
        if sent >= wanted and not refusals and self.answered:
            return Effect(True, f"{sent} of {wanted} sent, and none refused", reacted=False)
        return Effect(sent >= wanted and refused > 0, f"{sent} of {wanted} sent, {refused} refused")

    def expected_duration(self) -> float | None:
        """Return the longest time that it may take, in seconds."""
        return self.timeout_s


class Poison(Impersonation):
    """Contributions that can't be right: values that are not finite, or tensors of the wrong size."""

    drawn = Drawn(150, {"content": ("nan", "inf", "shape"), "count": (1, 3)}, family="values")

    kind: Literal["poison"] = "poison"
    answered: ClassVar[bool] = True
    content: Content = "nan"
    """`nan`, `inf`, or `shape`."""

    def rogue(self, hit: FaultContext, target: str) -> Impostor:
        """One that is asked for contributions."""
        return hit.rogue(target, self.content)

    def refused(self, event: Refused) -> bool:
        """Return whether it was refused for what is wrong with it, and stood for a single step as the impostor's do."""
        return event.reason == _REASONS[self.content] and event.first is not None and event.first == event.last

    def describe(self) -> str:
        """Return what the fault does, in words for people."""
        what = {"nan": "NaN", "inf": "infinite", "shape": "wrongly sized"}[self.content]
        return f"{self.count} {what} contributions in the name of {names(self.targets)}"


class Lie(Impersonation):
    """Reports of absurd numbers: steps, tokens, a place in the data, or versions, beyond all that is possible."""

    drawn = Drawn(160, {"about": ("step", "tokens", "position", "version"), "count": (1, 3)}, family="values")

    kind: Literal["lie"] = "lie"
    about: About = "step"
    """`step`, `tokens`, `position` or `version`."""

    def rogue(self, hit: FaultContext, target: str) -> Impostor:
        """One that reports."""
        return hit.rogue(target, self.about)

    def refused(self, event: Refused) -> bool:
        """Return whether the report was refused as impossible."""
        return str(event.reason).startswith("impossible report")

    def describe(self) -> str:
        """Return what the fault does, in words for people."""
        return f"{self.count} reports of absurd {self.about.rstrip('s')}s in the name of {names(self.targets)}"
