"""Round trip x rate x size of the model: how much of its own pace without any network each mode keeps."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Annotated, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from diloco_chaos.chaos.fleet.sweeps.cell import Cell, Measured, measured
from diloco_chaos.chaos.fleet.sweeps.ways import SYNC_EVERY, VALUES, WAYS, Gigabits, StepTime, Way, cluster_of, links
from diloco_chaos.harness.base.units import Count, Seconds, between
from diloco_chaos.harness.base.workers import Workers

Sharing = Literal["own", "shared"]
KEEPS = 0.9
"""A mode stands a link where it keeps so much of its pace."""
_ROUNDS = 5
"""Exchanges of the whole model in a run whose links cost nothing."""
_LONGEST_STEPS = 1_500
"""A run ends after the time of so many steps: what is slower by a factor of a thousand counts as nothing."""


class Wan(BaseModel):
    """The table's axes, and what all its cells have."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    parameters: tuple[Count, ...] = Field((12 * 10**9,), strict=False)
    """Of the model."""
    rtt: tuple[Annotated[Seconds, between(0, 60, "at most 60s")], ...] = Field(
        ("1ms", "100ms", "300ms"), strict=False, validate_default=True)
    """Round trip between a learner and the syncer, seconds."""
    rate: tuple[Gigabits, ...] = Field((1.0, 2.0, 5.0, 20.0, 100.0, 400.0), strict=False)
    """Gbit/s each way."""
    link: tuple[Sharing, ...] = Field(("own", "shared"), strict=False)
    """Whether every learner has the rate for itself, or all together, as those have who share the way to the syncer."""
    mode: tuple[Way, ...] = Field(WAYS, strict=False)
    sites: int = Field(4, ge=2, le=64)
    """Learners, each at a site of its own."""
    step_time: StepTime = 2.0
    """Of an inner step."""
    seed: int = Field(0, ge=0)

    @property
    def lasts(self) -> float:
        """Seconds, at the most."""
        return _LONGEST_STEPS * self.step_time


class WanRound(NamedTuple):
    """A row of the table."""

    parameters: int
    link: Sharing
    rtt: float
    rate: float


class WanRow(NamedTuple):
    """A place, and what was measured there."""

    place: WanRound
    kept: dict[Way, float]
    """Merged tokens per second, as a share of the same mode's where the links cost nothing."""


def swept(wan: Wan, workers: Workers[Cell, Measured]) -> list[WanRow]:
    """Run all cells, and return the rows, in the order of the axes.

    Raises:
        WorkersError: workers die again and again.
    """
    places = [WanRound(*values) for values in product(wan.parameters, wan.link, wan.rtt, wan.rate)]
    keys = list(product([None, *places], wan.mode))
    results = measured(keys, lambda key: _cell(wan, *key), workers)
    return [WanRow(place, {way: results[place, way].tokens_per_s / results[None, way].tokens_per_s for way in wan.mode})
            for place in places]


def _cell(wan: Wan, place: WanRound | None, way: Way) -> Cell:
    cluster = cluster_of(way, wan.sites, wan.step_time, _ROUNDS * SYNC_EVERY, wan.lasts)
    if place is None:
        return Cell(cluster=cluster, deadline=wan.lasts, seed=wan.seed)
    faults = tuple(links(place.rate, place.rtt, wan.lasts, place.link == "shared"))
    return Cell(cluster=cluster, faults=faults, deadline=wan.lasts, payload=place.parameters / VALUES, seed=wan.seed)


def least_rate(rows: Sequence[WanRow], way: Way) -> float | None:
    """Return the lowest rate, in Gbit/s, from which on a mode keeps its pace in these rows; None: it never does."""
    least = None
    for row in sorted(rows, key=lambda row: -row.place.rate):
        if row.kept[way] < KEEPS:
            break
        least = row.place.rate
    return least
