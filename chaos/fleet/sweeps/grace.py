"""What the grace window brings: contributors and loss, by gamma and by how fast links are."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from statistics import mean
from typing import Annotated, NamedTuple

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from diloco_chaos.chaos.fleet.sweeps.cell import Cell, Measured, repeated
from diloco_chaos.chaos.fleet.sweeps.ways import SYNC_EVERY, VALUES, Gigabits, StepTime, cluster_of, links
from diloco_chaos.harness.base.units import Count, Seconds, between, number
from diloco_chaos.harness.base.workers import Workers

_ROUNDS = 10
_LONGEST_TIMES = 3.0


class Grace(BaseModel):
    """The table's axes, and what all its cells have."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    gamma: tuple[Annotated[float, BeforeValidator(number), between(0, 1, "between 0 and 1")], ...] = Field(
        (0.0, 0.05, 0.1, 0.2, 0.4, 0.8), strict=False)
    """Shares of the slack that the grace window may use."""
    rate: tuple[Gigabits, ...] = Field((1.2, 2.0, 5.0, 20.0), strict=False)
    """Gbit/s of a learner, each way."""
    learners: int = Field(8, ge=2, le=64)
    """M."""
    quorum: int = Field(1, ge=1, le=64)
    """K."""
    parameters: Count = 12 * 10**9
    """Of the model."""
    rtt: Annotated[Seconds, between(0, 60, "at most 60s")] = 0.03
    """Round trip between a learner and the syncer, seconds."""
    step_time: StepTime = 2.0
    """Of an inner step."""
    variance: float = Field(0.2, ge=0, le=0.9)
    """Share by up to which a step takes more or less: without any, all answer at once, and there is nothing to wait
    for."""
    runs: int = Field(5, ge=1, le=1000)
    """Of each cell, with other seeds."""
    seed: int = Field(0, ge=0)

    @model_validator(mode="after")
    def _can_be_reached(self) -> Grace:
        if self.quorum > self.learners:
            raise ValueError(f"--quorum {self.quorum}: there are {self.learners} learners")
        return self


class GraceRow(NamedTuple):
    """The results for a gamma and a rate, means over the runs."""

    gamma: float
    rate: float
    contributors: float
    tokens_per_s: float
    """Merged."""
    excess: float | None
    """Final loss above its floor; None: not all runs processed their budget."""


def swept(asked: Grace, workers: Workers[Cell, Measured]) -> list[GraceRow]:
    """Run all cells, and return the rows, gamma by gamma.

    Raises:
        WorkersError: workers die again and again.
    """
    keys = list(product(asked.gamma, asked.rate))
    results = repeated(keys, lambda key: _cell(asked, *key), asked.runs, workers)
    return [_row(gamma, rate, results[gamma, rate]) for gamma, rate in keys]


def _row(gamma: float, rate: float, runs: Sequence[Measured]) -> GraceRow:
    excess = [run.excess for run in runs if run.excess is not None]
    return GraceRow(gamma, rate, mean(run.contributors for run in runs), mean(run.tokens_per_s for run in runs),
               mean(excess) if len(excess) == len(runs) else None)


def _cell(asked: Grace, gamma: float, rate: float) -> Cell:
    budget = _ROUNDS * SYNC_EVERY
    lasts = _LONGEST_TIMES * budget * asked.step_time
    cluster = cluster_of("decoupled", asked.learners, asked.step_time, budget, lasts, grace=gamma,
                         quorum=asked.quorum, variance=asked.variance)
    return Cell(cluster=cluster, faults=tuple(links(rate, asked.rtt, lasts)), deadline=lasts,
                payload=asked.parameters / VALUES, seed=asked.seed)
