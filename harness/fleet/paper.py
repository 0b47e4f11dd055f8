"""The published table of goodput (Decoupled DiLoCo, arXiv 2604.21428), and a fleet that has three of its numbers.

Three parameters are free: for how long a group stands to shrink and as long to grow, how long a repair takes, and how
long a rigid job takes to begin again. They are solved, by the closed forms, from the three cells of `FITTED` alone.
All other cells are predicted.
"""

from __future__ import annotations

from typing import NamedTuple

from diloco_chaos.harness.fleet.fleet import Fleet, Mode


class PublishedCell(NamedTuple):
    """One number of the published table."""

    chips: int
    mode: Mode
    learners: int
    goodput: float
    """As it was published, in whole percent, as a share."""


_SMALL, _LARGE = 1_200_000, 2_400_000
PUBLISHED = (
    PublishedCell(_SMALL, "data_parallel", 1, 0.27),
    PublishedCell(_SMALL, "elastic_data_parallel", 1, 0.58),
    PublishedCell(_SMALL, "decoupled", 2, 0.70),
    PublishedCell(_SMALL, "decoupled", 8, 0.88),
    PublishedCell(_SMALL, "decoupled", 16, 0.93),
    PublishedCell(_LARGE, "data_parallel", 1, 0.18),
    PublishedCell(_LARGE, "elastic_data_parallel", 1, 0.40),
    PublishedCell(_LARGE, "decoupled", 8, 0.80),
    PublishedCell(_LARGE, "decoupled", 16, 0.86),
)
FITTED = (PUBLISHED[0], PUBLISHED[1], PUBLISHED[3])
"""All at 1.2 million chips: whatever stands at 2.4 million is predicted."""
SWEPT = (150_000, 300_000, 600_000, _SMALL, _LARGE)
"""Numbers of chips of the sweep."""
UPTIME_FROM = 4
"""With so many learners, or more, the published uptime is 100%."""


def fitted(base: Fleet | None = None) -> Fleet:
    """The fleet of the table. What the fit does not set is as in `base`."""
    base = base or Fleet()
    rigid, elastic, decoupled = FITTED
    chips, learners = base.model_copy(update={"chips": elastic.chips}), decoupled.learners
    # elastic: s / (1 + x), decoupled: s / (1 + x / M), of slices in service s and standing seconds a second x
    quotient = decoupled.goodput / elastic.goodput
    stands = (quotient - 1) / (1 - quotient / learners)
    in_service = elastic.goodput * (1 + stands)
    repair = chips.slice_mtbf * (1 / in_service - 1)
    per_s = chips.slices / (chips.slice_mtbf + repair)
    restart = (1 / rigid.goodput - 1) * chips.slice_mtbf / chips.slices
    pause = stands / per_s / 2
    return base.model_copy(update={"repair": repair, "restart": restart, "shrink": pause, "grow": pause})


def swept(base: Fleet) -> list[Fleet]:
    """Return a fleet for every way to train of the table with each of these numbers of chips, way by way."""
    ways = dict.fromkeys((cell.mode, cell.learners) for cell in PUBLISHED)
    return [fleet_of(PublishedCell(chips, mode, learners, 0.0), base) for mode, learners in ways for chips in SWEPT]


def fleet_of(cell: PublishedCell, base: Fleet) -> Fleet:
    """The same fleet with that many chips, trained in that way."""
    return base.model_copy(update={"chips": cell.chips, "mode": cell.mode, "learners": cell.learners})
