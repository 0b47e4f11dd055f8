"""When a fault comes: at a count of events, at a point of the protocol, at a line of a log, at a file, in a state of
training, after another fault."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from diloco_chaos.harness.base.units import Seconds, Size, is_expression, show_bytes, show_seconds

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


def _in_the_run(text: str) -> str:
    if text.startswith("/") or ".." in text.split("/"):
        raise ValueError("it must be within the run's folder: a pattern in the node's `state`, such as `*.pt`, or "
                         "'{run}/...'")
    return text


class When(Condition):
    """A logical trigger: the `count`-th event of this name at this node since the steady state, a failpoint, a line of
    its log, a file, or a state of training."""

    node: str = ""
    event: str = ""
    """Name of an event on the node's tape (docs/evidence.md)."""
    failpoint: str | None = Field(None, max_length=80)
    """A named point of the protocol at which the node stands still for the fault."""
    log: Annotated[str, Field(min_length=1, max_length=1000), AfterValidator(is_expression)] | None = None
    """A regular expression for a line of the node's log; with `file`, of the files that match it."""
    file: Annotated[str, Field(min_length=1, max_length=400), AfterValidator(_in_the_run)] | None = None
    """A pattern for files in the node's `state`, or `{run}/...`: one that appears, or is replaced."""
    grows: Size | None = None
    """Of `file`: one that has grown by this much."""
    count: int = Field(1, ge=1, le=10**9)

    @model_serializer(mode="wrap")
    def _without_defaults(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Return the document without the newer triggers that are not used: older frozen plans lack them."""
        document: dict[str, Any] = serialize(self)
        return {key: value for key, value in document.items()
                if value is not None or key not in ("log", "file", "grows")}

    @model_validator(mode="after")
    def _one(self) -> When:
        ways = [bool(self.event), self.failpoint is not None, self.sights, not self.empty]
        if sum(ways) != 1:
            raise ValueError("name one of: an event, a failpoint, a line of the log (`log: 'saving'`), a file (`file: "
                             "'*.pt'`), or a state of training (loss_below, loss_above, alive_below)")
        if self.grows is not None and (self.file is None or self.log is not None):
            raise ValueError("grows: it is said of a `file`, and without `log`")
        if self.grows == 0:
            raise ValueError("grows: say by how much: `grows: 1MB`; without `grows` a file counts as it appears")
        if not self.empty and (self.node or self.count != 1):
            raise ValueError("a state of training belongs to no node, and is not counted")
        if self.empty and not self.node:
            raise ValueError("say at which node: `node: learner-1`")
        return self

    @property
    def sights(self) -> bool:
        """Return whether it waits for a line or a file, which no event tells of by itself."""
        return self.log is not None or self.file is not None

    def describe(self) -> str:
        """Return the trigger in words for people."""
        if not self.empty:
            return super().describe()
        if self.sights:
            return f"{self.node} {self._sight()} (number {self.count})"
        what = f"stopped at failpoint {self.failpoint}" if self.failpoint else self.event
        return f"{self.node} {what} (number {self.count})"

    def _sight(self) -> str:
        if self.log is not None:
            return f"writes a line that matches {self.log!r}" + (f" to {self.file}" if self.file else "")
        return f"has {self.file}" + (f" grown by {show_bytes(self.grows)}" if self.grows else "")


Stage = Literal["begun", "noticed", "restarted", "first_round", "over"]
"""How far the recovery from a fault has come."""


class After(BaseModel):
    """When the recovery from another fault has come so far; if nothing is said, when that is over: healed, or its
    target started again; at once where neither is to come."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, defer_build=True)

    fault: str
    wait: Seconds = 0.0
    phase: Stage = "over"
    """`begun`: it was injected; `noticed`: another node missed its target; `restarted`: a process of its target was
    started; `first_round`: its target has made a round since it was restarted or the fault was healed."""

    @model_serializer(mode="wrap")
    def _without_defaults(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Return the document without a phase where it has its default: older frozen plans lack it."""
        document: dict[str, Any] = serialize(self)
        return {key: value for key, value in document.items() if (key, value) != ("phase", "over")}

    @model_validator(mode="before")
    @classmethod
    def _by_name(cls, value: Any) -> Any:
        """`after: f1` for `after: {fault: f1}`."""
        return {"fault": value} if isinstance(value, str) else value

    def describe(self) -> str:
        """Return the trigger in words for people."""
        stage = "" if self.phase == "over" else f" {self.phase.replace('_', ' ')}"
        return f"{show_seconds(self.wait)} after {self.fault}{stage}" if self.wait else f"after {self.fault}{stage}"
