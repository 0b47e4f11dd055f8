"""A node that another one takes the place of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import Field, model_validator

from diloco_chaos.faults.base import Drawn, Fault, FaultContext, Observation
from diloco_chaos.faults.evidence import Effect, Evidence, Injection
from diloco_chaos.harness.base.units import show_seconds
from diloco_chaos.harness.places.base import Ability
from diloco_chaos.harness.record.tape.events import Spawn


class Replace(Fault):
    """A node is ended for good, whether it is a lemon, dead or well, and a spare that was not there before is started
    in its place."""

    needs: ClassVar[frozenset[Ability]] = frozenset({"kill", "join"})
    reversible: ClassVar[bool] = False
    stops_target: ClassVar[bool] = True
    target_role = "learner"
    drawn = Drawn(27, family="ends", asked=True, spare="with")

    kind: Literal["replace"] = "replace"
    spare: str = Field("", alias="with")
    """The node that takes its place."""

    @model_validator(mode="after")
    def _one_by_one(self) -> Replace:
        if len(self.targets) != 1 or not self.spare:
            raise ValueError("one node at a time, and another one in its place: `{replace: w-2, with: w-5, at: 12s}`")
        if self.spare in self.targets:
            raise ValueError(f"{self.spare} can't take its own place")
        return self

    def inject(self, hit: FaultContext) -> Observation:
        """End the one, start the other."""
        for target in self.targets:
            hit.cluster.retire(target)
        hit.cluster.join(hit.spec(self.spare))
        return {}

    def verify(self, run: Evidence, on: Injection) -> Effect:
        """The spare was started, and the other one never again."""
        old, started = self.targets[0], run.tape.of(Spawn, node="harness")
        again = [event for event in started if event.target == old and event.t > on.began]
        if again:
            return Effect(False, f"{old}.{again[0].incarnation} was started all the same")
        came = next((event.t for event in started if event.target == self.spare and event.t >= on.began), None)
        if came is None:
            return Effect(False, f"{self.spare} was not started")
        first = next((merge.t for merge in run.merges if merge.t > came
                      and any(part.learner == self.spare for part in merge.contributions)), None)
        took = "had no part in a round" if first is None else f"had part in a round after {show_seconds(first - came)}"
        return Effect(True, f"{old} stayed away; {self.spare} was started, and {took}")

    def describe(self) -> str:
        """Return what the fault does, in words for people."""
        return f"{self.spare} takes the place of {self.targets[0]}"

    def joining(self) -> Sequence[str]:
        """Return the spare."""
        return (self.spare,)

    def expected_lost_time(self) -> float:
        """Return infinity: the node that is replaced trains no more."""
        return float("inf")

    def expected_duration(self) -> float | None:
        """Return None: that is for good."""
        return None

    def starts_process(self) -> bool:
        """That of the spare."""
        return True
