"""How much is still trained, and how well, while a share of the learners is gone for good."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from statistics import mean
from typing import Annotated, NamedTuple

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from diloco_chaos.chaos.fleet.sweeps.cell import Cell, Measured, repeated
from diloco_chaos.chaos.fleet.sweeps.ways import WAYS, Way, cluster_of
from diloco_chaos.harness.base.units import between, number
from diloco_chaos.harness.base.workers import Workers

_BUDGET = 240
"""Inner steps of each learner, if all are there."""
_STEP_TIME, _SILENCE = 0.1, 1.0
_SNAPSHOTS = 60
_TIMES = 4.0
"""A run may take so many times as long as with everybody."""
_SPARED_S = 30.0


class FailedShare(BaseModel):
    """The table's axes, and what all its cells have."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    learners: int = Field(16, ge=2, le=64)
    """M."""
    gone: tuple[Annotated[float, BeforeValidator(number), between(0, 1, "between 0% and 100%")], ...] = Field(
        (0.0, 0.125, 0.25, 0.375, 0.5), strict=False)
    """Shares of them that are killed, and never come back."""
    mode: tuple[Way, ...] = Field(WAYS, strict=False)
    runs: int = Field(5, ge=1, le=1000)
    """Of each cell, with other seeds."""
    seed: int = Field(0, ge=0)

    @property
    def counts(self) -> list[int]:
        """Learners that are gone, nobody first; one is always left."""
        return list(dict.fromkeys(min(round(share * self.learners), self.learners - 1) for share in (0.0, *self.gone)))


class FailedShareRow(NamedTuple):
    """The results of a mode while a number of its learners is gone."""

    mode: Way
    gone: int
    goodput: float
    """Merged tokens per second, as a share of the same mode's with everybody."""
    by_tokens: float | None
    """Share of the loss above its floor that is gone once the budget is processed; None: it never is. Who is gone
    leaves the others more steps of smaller batches."""
    by_time: float
    """The same when the run with everybody is over."""


def swept(asked: FailedShare, workers: Workers[Cell, Measured]) -> list[FailedShareRow]:
    """Run all cells, and return the rows, mode by mode.

    Raises:
        WorkersError: workers die again and again.
    """
    keys = list(product(asked.mode, asked.counts))
    results = repeated(keys, lambda key: _cell(asked, *key), asked.runs, workers)
    return [_row(way, count, results[way, count], results[way, 0]) for way, count in keys]


def _row(way: Way, count: int, runs: Sequence[Measured], whole: Sequence[Measured]) -> FailedShareRow:
    """Return a mode's row, means over its runs. `whole`: the runs with all learners, with the same seeds."""
    pairs = list(zip(runs, whole, strict=True))
    return FailedShareRow(way, count, mean(run.tokens_per_s / whole_run.tokens_per_s for run, whole_run in pairs),
               mean(run.learned(math.inf) for run in runs) if all(run.finished for run in runs) else None,
               mean(run.learned(whole_run.lasted) for run, whole_run in pairs))


def _cell(asked: FailedShare, way: Way, gone: int) -> Cell:
    """The last ones are killed at the steady state."""
    cluster = cluster_of(way, asked.learners, _STEP_TIME, _BUDGET, _SILENCE, snapshots=_SNAPSHOTS)
    last = [f"learner-{index}" for index in range(asked.learners - gone + 1, asked.learners + 1)]
    faults = ({"kill": last, "at": "0s"},) if last else ()
    return Cell(cluster=cluster, faults=faults, deadline=_TIMES * _BUDGET * _STEP_TIME + _SPARED_S,
                seed=asked.seed)
