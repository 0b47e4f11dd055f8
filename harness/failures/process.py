"""A process by which nodes fail as real ones do: some are worse than others, who was just repaired fails again soon,
several fail at once, and a few repairs take very long."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from diloco_chaos.harness.base.units import LongSeconds, Part, between

_LEAST_LEMONS = 0.01
LEAST_S = 0.001
"""Nothing that a process draws is shorter, on average."""
_RELAPSE, _WAVE = 0.03, 0.1
"""Of the mean time in service, as in a year of 400 real servers."""


class FailureProcess(BaseModel):
    """Failures of nodes, in relation to each other. How often a node fails on average, and for how long it is then
    away, is said beside it."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    lemons: float = Field(0.0, ge=0, le=1000)
    """The shape of the gamma distribution of nodes' own rates, whose mean is 1: at 1 the worst tenth of nodes has a
    third of their failures, below it more. 0: all are alike."""
    relapse: Part = 0.0
    """The share of nodes that fail again soon after they are back."""
    relapse_within: Annotated[LongSeconds, between(0.001, 1e9, "1 ms or more")] | None = None
    """For how long those are in service, on average. None: 3% of the mean time that nodes are."""
    relapse_shape: float = Field(1.0, ge=0.2, le=10)
    """Of the Weibull distribution of that time; 1: exponential. Below 1 many fail almost at once."""
    burst: Part = 0.0
    """The share of failures that come at the same moment as others."""
    burst_size: float = Field(2.0, ge=2, le=10_000)
    """So many nodes fail in such a burst on average: two, and others by a geometric distribution."""
    burst_of: Literal["any", "neighbours"] = "any"
    """Which: any nodes, or those that stand side by side, as in a rack: in a fleet they are of one learner."""
    waves: float = Field(0.0, ge=0, le=1000)
    """There are bad times and good ones for all nodes together: the shape of the gamma distribution, whose mean is 1,
    of the factor by which all rates change. 0: they stay."""
    wave_length: Annotated[LongSeconds, between(0.001, 1e9, "1 ms or more")] | None = None
    """After so long the next factor is drawn. None: 10% of the mean time that nodes are in service."""
    repair_shape: float = Field(1.0, ge=0.1, le=10)
    """Of the Weibull distribution of repairs; 1: exponential. Below 1 a few take very long."""
    repair_sigma: float = Field(0.0, ge=0, le=5)
    """Above 0 repairs have a lognormal distribution instead: the standard deviation of their logarithm."""

    @model_validator(mode="after")
    def _possible(self) -> FailureProcess:
        if problems := list(self._problems()):
            raise ValueError("; ".join(problems))
        return self

    def _problems(self) -> Iterator[str]:
        if self.relapse + self.burst >= 1:
            yield (f"relapse {self.relapse:.0%} and burst {self.burst:.0%}: together they are less than 100%, for "
                   f"something must fail first")
        if 0 < self.lemons < _LEAST_LEMONS:
            yield f"lemons {self.lemons:g}: 0 (all are alike), or {_LEAST_LEMONS:g} and more"
        if self.repair_sigma and self.repair_shape != 1:
            yield "repair_shape and repair_sigma: repairs are Weibull or lognormal: leave one of them out"

    def at_pace(self, times: float) -> FailureProcess:
        """Return the process of nodes that fail after so many times as long, those that fail again soon, too."""
        return self if self.relapse_within is None else self.model_copy(
            update={"relapse_within": max(LEAST_S, self.relapse_within * times)})

    def relapse_s(self, in_service_s: float) -> float:
        """Mean seconds until a relapse, of nodes that are in service for so long on average."""
        return self.relapse_within or max(LEAST_S, _RELAPSE * in_service_s)

    def wave_s(self, in_service_s: float) -> float:
        """Return for how many seconds a factor lasts, of nodes that are in service for so long on average."""
        return self.wave_length or max(LEAST_S, _WAVE * in_service_s)
