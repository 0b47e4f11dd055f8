"""What nodes say to each other. The header of every frame is one of these; tensors travel as its payload."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import Field

from diloco_chaos.harness.trainers.wire.messages import Count, Introduction, Message, vocabulary

Span = Annotated[float, Field(ge=0, allow_inf_nan=False)]
"""Seconds."""


@dataclass(kw_only=True, slots=True)
class Hello(Introduction):
    """A learner's first frame on every connection."""

    step: Count
    """Own step count; 0 for a new process, which starts at the global step instead."""
    tokens: Count
    """Processed by this incarnation so far."""
    position: Count
    """Batches of its shard that were used so far, 0 for a new process."""
    versions: list[int]
    """Base version per fragment, -1 where it has none."""
    steps: list[Count]
    """c_steps per fragment: what it can be asked for at once."""


@dataclass(kw_only=True, slots=True)
class Welcome(Message):
    """The syncer's answer to Hello: where training stands."""

    type: Literal["welcome"] = "welcome"
    step: Count
    """Global step t."""
    tokens: Count
    """Processed by all learners."""
    position: Count
    """Where to continue in this learner's shard."""
    steady: bool


@dataclass(kw_only=True, slots=True)
class Clock(Message):
    """Global step and processed tokens, sent when the step advances and as a heartbeat."""

    type: Literal["clock"] = "clock"
    step: Count
    tokens: Count
    steady: bool
    """The syncer has merged from every learner: time zero of the experiment has passed."""
    sent: Span = 0.0
    """On the syncer's own clock: the next report echoes it."""


@dataclass(kw_only=True, slots=True)
class Report(Message):
    """A learner's state after an inner step; cumulative, so that any report may be lost."""

    replaceable = True
    type: Literal["report"] = "report"
    step: Count
    tokens: Count
    position: Count
    fragments: list[tuple[int, Count, Count]]
    """Per fragment: base version, c_steps, c_tokens."""
    took: Span = 0.0
    """Seconds since its step before, on its own clock; 0 where there was none. When reports arrive says little of that:
    they may have waited for a syncer that stood still."""
    clock: tuple[Span, Span] | None = None
    """(`sent` of the newest Clock that came since the report before, seconds since then)."""
    received: list[tuple[Span, Span]] = field(default_factory=list)
    """(`closed` of a Broadcast that came since the report before, seconds since then)."""


@dataclass(kw_only=True, slots=True)
class Request(Message):
    """The syncer asks for a learner's outer gradient of one fragment."""

    type: Literal["request"] = "request"
    round: Count
    fragment: Count


@dataclass(kw_only=True, slots=True)
class OuterGradient(Message):
    """The outer gradient (base minus current) with the counters at that moment; no payload where steps is 0."""

    type: Literal["outer_gradient"] = "outer_gradient"
    round: Count
    fragment: Count
    base_version: Count
    first_step: Count
    last_step: Count
    steps: Count
    tokens: Count
    digest: str


@dataclass(kw_only=True, slots=True)
class Broadcast(Message):
    """A fragment's new value, to every learner."""

    type: Literal["broadcast"] = "broadcast"
    fragment: Count
    version: Count
    digest: str
    """Of the value."""
    base: Annotated[int, Field(ge=-1)] = -1
    """Version that the payload has changed, compressed; -1: the payload is the value itself."""
    merged: Count = 0
    """The receiver's last step that is part of it; 0: none of this process."""
    closed: Span = 0.0
    """When its round was closed, on the syncer's own clock: the next report echoes it; 0: it is sent again, later."""


@dataclass(kw_only=True, slots=True)
class Reset(Message):
    """What the learner has can't be right: it drops all of it. What follows is the current value of every fragment."""

    type: Literal["reset"] = "reset"
    reason: str


@dataclass(kw_only=True, slots=True)
class Donate(Message):
    """The syncer asks a learner for all that it holds: somebody else shall begin with it."""

    type: Literal["donate"] = "donate"
    learner: str
    """Who."""


@dataclass(kw_only=True, slots=True)
class Donation(Message):
    """A learner's base of every fragment, by way of the syncer: all links are those of a star."""

    type: Literal["donation"] = "donation"
    learner: str
    """Whom it is for."""
    versions: list[Count]
    """The donor's vector clock."""
    digests: list[str]
    """Of every fragment's value."""


@dataclass(kw_only=True, slots=True)
class CheckpointRequest(Message):
    """The syncer asks everybody to save what they are at this place among all messages."""

    type: Literal["checkpoint_request"] = "checkpoint_request"
    number: Count


@dataclass(kw_only=True, slots=True)
class CheckpointAck(Message):
    """A learner's part of a checkpoint is on stable storage."""

    type: Literal["checkpoint_ack"] = "checkpoint_ack"
    number: Count


@dataclass(kw_only=True, slots=True)
class Gradient(Message):
    """Data parallelism: one peer's gradient of one training step."""

    type: Literal["gradient"] = "gradient"
    epoch: Count
    """Of the group that averages it; a gradient for an earlier one is void."""
    step: Count
    """Training step, which goes back when the group does."""
    number: Count
    """The peer's own count of inner steps, which never goes back."""

    @property
    def round(self) -> int:
        """As of `OuterGradient`: its step."""
        return self.step

    @property
    def fragment(self) -> int:
        """As of `OuterGradient`: the whole model is one."""
        return 0


@dataclass(kw_only=True, slots=True)
class Average(Message):
    """Data parallelism: the mean gradient of one step."""

    type: Literal["average"] = "average"
    step: Count
    tokens: Count
    """Trained on by the group once it is applied."""


@dataclass(kw_only=True, slots=True)
class Resume(Message):
    """Data parallelism: a new group begins, or goes on, at this step; with a state to load where one is sent."""

    type: Literal["resume"] = "resume"
    epoch: Count
    step: Count
    tokens: Count
    """Trained on before this step."""
    writes: bool
    """This peer writes the snapshots and the checkpoints."""


@dataclass(kw_only=True, slots=True)
class Fetch(Message):
    """Data parallelism: the hub asks a peer for its state, which somebody else shall begin with."""

    type: Literal["fetch"] = "fetch"
    epoch: Count


@dataclass(kw_only=True, slots=True)
class State(Message):
    """Data parallelism: a peer's weights and inner optimizer, as a checkpoint or because they were asked for."""

    type: Literal["state"] = "state"
    epoch: Count
    step: Count
    tokens: Count
    digest: str


@dataclass(kw_only=True, slots=True)
class Finish(Message):
    """Training is over: the budget of tokens was processed."""

    type: Literal["finish"] = "finish"


MESSAGES = vocabulary(
    Hello | Welcome | Clock | Report | Request | OuterGradient | Broadcast | Reset | Donate | Donation
    | CheckpointRequest | CheckpointAck | Gradient | Average | Resume | Fetch | State | Finish)
