"""A fleet of chips, and how a job on it goes on when some of them are interrupted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from diloco_chaos.harness.base.units import Count, LongSeconds, Share, between
from diloco_chaos.harness.failures.drawing import impossible
from diloco_chaos.harness.failures.lengths import Lengths
from diloco_chaos.harness.failures.process import FailureProcess
from diloco_chaos.harness.failures.source import How, Source

Mode = Literal["data_parallel", "elastic_data_parallel", "decoupled"]
Chips = Annotated[Count, between(1, 10**9, "at most a billion")]
_LEAST_SHAPE = 0.3
Shape = Annotated[float, Field(ge=_LEAST_SHAPE, le=10)]
_MOST_SLICES = 10**6


class Fleet(BaseModel):
    """Chips stand in *slices*, which go and come as a whole; slices are dealt out to *groups*, which train in step.
    With data parallelism there is one group, in `decoupled` each learner is one."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    mode: Mode = "decoupled"
    chips: Chips = 1_200_000
    slice_chips: Chips = 256
    """Chips of a slice: what one interruption takes away."""
    learners: Chips = 8
    """M, of a decoupled run."""
    quorum: int = Field(1, ge=1)
    """K: the fleet is up while so many of its learners train."""

    mtbf: LongSeconds = 365.25 * 86_400.0
    """Mean time between two interruptions of a chip."""
    shape: Shape = 1.0
    """Of the Weibull distribution of a slice's time in service; 1: exponential. Below 1 who was just put back fails
    most."""
    repair: LongSeconds = 1.0
    """Mean time until an interrupted slice, or a spare in its place, can be had again."""
    repair_shape: Shape = 1.0
    """Of its exponentiated Weibull distribution; 1, and the exponent, too: exponential. Below 1 a few take very long.
    """
    repair_exponent: Shape = 1.0
    """Of the same; above 1 hardly any is over at once."""

    process: FailureProcess | None = None
    """By which slices fail, as often as `mtbf` says; None: each independently, with the shapes above."""
    trace: str = ""
    """A file of outages, in which a node stands for a slice; empty: none."""
    trace_nodes: int | None = Field(None, ge=1)
    """Of the cluster that the trace is of; None: those that it names."""
    how: How = "fitted"
    """How a trace is used."""

    detection: LongSeconds = 0.0
    """Until a group knows that a slice of it is gone; until then it stands."""
    shrink: LongSeconds = 17.7
    """For which a group stands to go on without a slice."""
    grow: LongSeconds = 17.7
    """For which it stands to take one back."""
    grow_within: LongSeconds = 173.0
    """Slices that return within so long of the first are taken back together, at its end; 0: each at once."""
    recovery: LongSeconds = 60.0
    """For which a learner stands that had lost all its slices, and is brought up to date by the others."""
    restart: LongSeconds = 90.8
    """For which all stand where the job is rigid: a spare slice takes the place of the lost one, all begin again."""
    restart_shape: float = Field(0.85, ge=0, le=10)
    """Of the Weibull distribution of that time, whose mean is `restart`; a slice that is lost meanwhile makes all begin
    anew. 0: it always takes as long, and what is lost meanwhile is replaced by the same restart."""
    spares: int | None = Field(None, ge=0)
    """Slices that a rigid job has beside those that it trains on, and where they are all away it waits; None: always
    one more."""
    checkpoint_every: LongSeconds = 0.0
    """Of a rigid job: what it made since the last one is lost by an interruption. 0: nothing ever is."""
    checkpoint_cost: LongSeconds = 0.0
    """For which it stands to make one."""

    spread: Share = 0.0
    """A chip's step takes longer by an exponential share of so much on average; the slowest chip of a group sets its
    pace."""
    straggler_mtbf: LongSeconds = 0.0
    """Mean time until a chip becomes a straggler; 0: none ever does."""
    straggler_for: LongSeconds = 60.0
    """Mean time, exponential, for which it is one."""
    straggler_speed: float = Field(0.5, gt=0, le=1)
    """Of a straggler, and so of its group, as a share."""

    @model_validator(mode="after")
    def _possible(self) -> Fleet:
        problems = list(self._problems())
        if problems:
            raise ValueError("; ".join(problems))
        return self

    def _problems(self) -> Iterator[str]:
        if self.slice_chips > self.chips:
            yield f"a slice of {self.slice_chips} chips, and {self.chips} chips in all: make slice_chips smaller"
        elif self.slices > _MOST_SLICES:
            yield f"{self.slices} slices are more than the {_MOST_SLICES} that are simulated: make slice_chips larger"
        elif self.mode == "decoupled" and self.learners > self.slices:
            yield (f"{self.learners} learners, and {self.slices} slices of {self.slice_chips} chips: a learner needs "
                   f"one at least")
        if self.mode == "decoupled" and self.quorum > self.learners:
            yield f"quorum {self.quorum} of {self.learners} learners"
        if not self.mtbf:
            yield "mtbf 0s: such chips never work"
        elif self.process is not None and (why := impossible(self.process, self.slice_mtbf)):
            yield f"process: {why}"
        if not self.repair:
            yield "repair 0s: nothing is repaired in no time"
        if 0 < self.restart_shape < _LEAST_SHAPE:
            yield f"restart_shape {self.restart_shape:g}: 0 (always as long), or {_LEAST_SHAPE} and more"
        if self.checkpoint_cost and not self.checkpoint_every:
            yield "checkpoint_cost means nothing without checkpoint_every"

    @property
    def slices(self) -> int:
        """Return how many slices there are."""
        return max(1, round(self.chips / self.slice_chips))

    @property
    def slice_mtbf(self) -> float:
        """Mean seconds that a slice is in service."""
        return self.mtbf * self.slices / self.chips

    @property
    def groups(self) -> int:
        """Return how many groups train by themselves."""
        return self.learners if self.mode == "decoupled" else 1

    @property
    def away_s(self) -> float:
        """Mean seconds for which a slice is away; none where a spare takes its place at once."""
        return 0.0 if self.mode == "data_parallel" and self.spares is None else self.repair

    @property
    def failures(self) -> Source:
        """Return where the failures of slices come from."""
        return Source(Lengths(self.slice_mtbf, self.shape), Lengths(self.away_s, self.repair_shape,
                      self.repair_exponent), self.process, self.trace, self.trace_nodes, self.how)

    @property
    def interruptions_per_s(self) -> float:
        """Return the interruptions per second of the whole fleet, on average: slices that are away don't fail."""
        return self.slices / (self.slice_mtbf + self.away_s)

    @property
    def in_service(self) -> float:
        """Share of the slices that are in a group, on average."""
        return self.slice_mtbf / (self.slice_mtbf + self.away_s + self.waits_s)

    @property
    def waits_s(self) -> float:
        """Mean seconds for which a slice that is back waits until its group takes it back: the first of some for
        `grow_within`, the others for half of it."""
        if self.mode == "data_parallel":
            return 0.0
        return self.grow_within * (1 + self.growths) / 2

    @property
    def growths(self) -> float:
        """Return how often a group grows for each slice that it loses."""
        return 1 / (1 + self.grow_within * self.interruptions_per_s / self.groups)

