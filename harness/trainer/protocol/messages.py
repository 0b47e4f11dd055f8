"""What nodes say to each other. The header of every frame is one of these; tensors travel as its payload."""

from __future__ import annotations

import sys
from typing import Annotated

from msgspec import Meta, field

from diloco_chaos.harness.trainers.wire.messages import Count, Introduction, Message, vocabulary

Span = Annotated[float, Meta(ge=0, le=sys.float_info.max)]
"""Seconds, neither NaN nor infinite."""


class Hello(Introduction, frozen=True, kw_only=True):
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


class Welcome(Message, frozen=True, kw_only=True):
    """The syncer's answer to Hello: where training stands."""

    step: Count
    """Global step t."""
    tokens: Count
    """Processed by all learners."""
    position: Count
    """Where to continue in this learner's shard."""
    steady: bool


class Clock(Message, frozen=True, kw_only=True):
    """Global step and processed tokens, sent when the step advances and as a heartbeat."""

    step: Count
    tokens: Count
    steady: bool
    """The syncer has merged from every learner: time zero of the experiment has passed."""
    sent: Span = 0.0
    """On the syncer's own clock: the next report echoes it."""


class Report(Message, frozen=True, kw_only=True):
    """A learner's state after an inner step; cumulative, so that any report may be lost."""

    replaceable = True
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


class Request(Message, frozen=True, kw_only=True):
    """The syncer asks for a learner's outer gradient of one fragment."""

    round: Count
    fragment: Count


class OuterGradient(Message, frozen=True, kw_only=True):
    """The outer gradient (base minus current) with the counters at that moment; no payload where steps is 0."""

    round: Count
    fragment: Count
    base_version: Count
    first_step: Count
    last_step: Count
    steps: Count
    tokens: Count
    digest: str


class Broadcast(Message, frozen=True, kw_only=True):
    """A fragment's new value, to every learner."""

    fragment: Count
    version: Count
    digest: str
    """Of the value."""
    base: Annotated[int, Meta(ge=-1)] = -1
    """Version that the payload has changed, compressed; -1: the payload is the value itself."""
    merged: Count = 0
    """The receiver's last step that is part of it; 0: none of this process."""
    closed: Span = 0.0
    """When its round was closed, on the syncer's own clock: the next report echoes it; 0: it is sent again, later."""


class Reset(Message, frozen=True, kw_only=True):
    """What the learner has can't be right: it drops all of it. What follows is the current value of every fragment."""

    reason: str


class Donate(Message, frozen=True, kw_only=True):
    """The syncer asks a learner for all that it holds: somebody else shall begin with it."""

    learner: str
    """Who."""


class Donation(Message, frozen=True, kw_only=True):
    """A learner's base of every fragment, by way of the syncer: all links are those of a star."""

    learner: str
    """Whom it is for."""
    versions: list[Count]
    """The donor's vector clock."""
    digests: list[str]
    """Of every fragment's value."""


class CheckpointRequest(Message, frozen=True, kw_only=True):
    """The syncer asks everybody to save what they are at this place among all messages."""

    number: Count


class CheckpointAck(Message, frozen=True, kw_only=True):
    """A learner's part of a checkpoint is on stable storage."""

    number: Count


class Gradient(Message, frozen=True, kw_only=True):
    """Data parallelism: one peer's gradient of one training step."""

    epoch: Count
    """Of the group that averages it; a gradient for an earlier one is void."""
    step: Count
    """Training step, which goes back when the group does."""
    number: Count
    """The peer's own count of inner steps, which never goes back."""

    @property
    def round(self) -> int:
        """Return the gradient's step, in place of the round of an `OuterGradient`."""
        return self.step

    @property
    def fragment(self) -> int:
        """Return 0, in place of the fragment of an `OuterGradient`: the whole model is one."""
        return 0


class Average(Message, frozen=True, kw_only=True):
    """Data parallelism: the mean gradient of one step."""

    step: Count
    tokens: Count
    """Trained on by the group once it is applied."""


class Resume(Message, frozen=True, kw_only=True):
    """Data parallelism: a new group begins, or goes on, at this step; with a state to load where one is sent."""

    epoch: Count
    step: Count
    tokens: Count
    """Trained on before this step."""
    writes: bool
    """This peer writes the snapshots and the checkpoints."""


class Fetch(Message, frozen=True, kw_only=True):
    """Data parallelism: the hub asks a peer for its state, which somebody else shall begin with."""

    epoch: Count


class State(Message, frozen=True, kw_only=True):
    """Data parallelism: a peer's weights and inner optimizer, as a checkpoint or because they were asked for."""

    epoch: Count
    step: Count
    tokens: Count
    digest: str


class Finish(Message, frozen=True):
    """Training is over: the budget of tokens was processed."""


MESSAGES = vocabulary(
    Hello | Welcome | Clock | Report | Request | OuterGradient | Broadcast | Reset | Donate | Donation
    | CheckpointRequest | CheckpointAck | Gradient | Average | Resume | Fetch | State | Finish)
