"""When a fault comes: at a count of events, at a point of the protocol, in a state of training, after another fault."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from diloco_chaos.harness.base.units import Seconds, show_seconds

Loss = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Condition(BaseModel):
    """A state of training. It holds as soon as one of its parts does."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, defer_build=True)

    loss_below: Loss | None = None
    """Training loss (nats per byte), smoothed over about twenty steps, mean over the learners."""
    loss_above: Loss | None = None
    alive_below: int | None = Field(None, ge=1, le=1000)
    """Learners whose process is there."""

    def met(self, loss: float | None, alive: int) -> str:
        """Return the part that holds, in words; empty where none does. `loss` is None before the first step."""
        if loss is not None and self.loss_below is not None and loss < self.loss_below:
            return f"the training loss is {loss:.3f}, below {self.loss_below:g}"
        if loss is not None and self.loss_above is not None and not loss <= self.loss_above:
            return f"the training loss is {loss:.3f}, above {self.loss_above:g}"
        if self.alive_below is not None and alive < self.alive_below:
            return f"{alive} learners are alive, fewer than {self.alive_below}"
        return ""

    def describe(self) -> str:
        """Return the condition in words for people."""
        parts = [f"{name.replace('_', ' ')} {value:g}" for name in Condition.model_fields
                 if (value := getattr(self, name)) is not None]
        return " or ".join(parts)

    @property
    def empty(self) -> bool:
        """Return whether it names nothing."""
        return all(getattr(self, name) is None for name in Condition.model_fields)


class AbortWhen(Condition):
    """The condition under which a scenario stops injecting."""

    @model_validator(mode="after")
    def _some(self) -> AbortWhen:
        if self.empty:
            raise ValueError("name a condition: loss_below, loss_above or alive_below")
        return self


class When(Condition):
    """A logical trigger: the `count`-th event of this name at this node since the steady state, a failpoint, or a
    state of training."""

    node: str = ""
    event: str = ""
    """Name of an event on the node's tape (docs/evidence.md)."""
    failpoint: str | None = Field(None, max_length=80)
    """A named point of the protocol at which the node stands still for the fault."""
    count: int = Field(1, ge=1, le=10**9)

    @model_validator(mode="after")
    def _one(self) -> When:
        ways = [bool(self.event), self.failpoint is not None, not self.empty]
        if sum(ways) != 1:
            raise ValueError("name one of: an event, a failpoint, or a state of training (loss_below, loss_above, "
                             "alive_below)")
        if not self.empty and (self.node or self.count != 1):
            raise ValueError("a state of training belongs to no node, and is not counted")
        if self.empty and not self.node:
            raise ValueError("say at which node: `node: learner-1`")
        return self

    def describe(self) -> str:
        """Return the trigger in words for people."""
        if not self.empty:
            return super().describe()
        what = f"stopped at failpoint {self.failpoint}" if self.failpoint else self.event
        return f"{self.node} {what} (number {self.count})"


class After(BaseModel):
    """When another fault is over: healed, or its target started again; at once where neither is to come."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, defer_build=True)

    fault: str
    wait: Seconds = 0.0

    @model_validator(mode="before")
    @classmethod
    def _by_name(cls, value: Any) -> Any:
        """`after: f1` for `after: {fault: f1}`."""
        return {"fault": value} if isinstance(value, str) else value

    def describe(self) -> str:
        """Return the trigger in words for people."""
        return f"{show_seconds(self.wait)} after {self.fault}" if self.wait else f"after {self.fault}"
