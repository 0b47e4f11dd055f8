"""The published table of goodput (Decoupled DiLoCo, arXiv 2604.21428, Table 1), and a fleet that is fitted to it.

Three parameters are free: for how long a group stands to shrink and as long to grow, within which time returns share a
growth, and how long a rigid job takes to begin again, on average. The first two are fitted by least squares to three
cells of the elastic row, the third has the rigid cell, all by the closed forms. All other cells are predicted, every
decoupled one among them. Nothing is away for long: a spare takes the place of a slice.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from diloco_chaos.harness.fleet.closed_forms import goodput
from diloco_chaos.harness.fleet.fleet import Fleet, Mode


class PublishedCell(NamedTuple):
    """One number of the published table."""

    chips: int
    mode: Mode
    learners: int
    goodput: float
    """As it was published, in whole percent, as a share."""


CHIPS = (150_000, 300_000, 600_000, 1_200_000, 2_400_000)
_ROWS: tuple[tuple[Mode, int, tuple[int, ...]], ...] = (
    ("data_parallel", 1, (72, 57, 38, 27, 18)),
    ("elastic_data_parallel", 1, (88, 80, 69, 58, 40)),
    ("decoupled", 2, (94, 88, 80, 70, 54)),
    ("decoupled", 4, (96, 93, 89, 82, 73)),
    ("decoupled", 8, (98, 96, 94, 88, 80)),
    ("decoupled", 16, (99, 98, 96, 93, 86)))
PUBLISHED = tuple(PublishedCell(chips, mode, learners, row[index] / 100) for index, chips in enumerate(CHIPS)
                  for mode, learners, row in _ROWS)
"""By the number of chips: fleets of one size have the same interruptions, which are drawn once."""


def cell_of(chips: int, mode: Mode, learners: int = 1) -> PublishedCell:
    """Return the published cell of such a fleet."""
    return next(cell for cell in PUBLISHED if cell[:3] == (chips, mode, learners))


_RIGID = cell_of(1_200_000, "data_parallel")
_ELASTIC = tuple(cell_of(chips, "elastic_data_parallel") for chips in (300_000, 1_200_000, 2_400_000))
FITTED = (_RIGID, *_ELASTIC)
UPTIME_FROM = 4
"""With so many learners, or more, the published uptime is 100%."""
_ROUNDS = 50


def fitted(base: Fleet | None = None) -> Fleet:
    """The fleet of the table. What the fit does not set is as in `base`."""
    base = base or Fleet()
    pause, within = _least_squares(base)
    grouped = base.model_copy(update={"shrink": pause, "grow": pause, "grow_within": within})
    least, most = 0.0, 3600.0
    for _ in range(_ROUNDS):
        restart = (least + most) / 2
        better = goodput(fleet_of(_RIGID, grouped.model_copy(update={"restart": restart}))) > _RIGID.goodput
        least, most = (restart, most) if better else (least, restart)
    return grouped.model_copy(update={"restart": least})


def _least_squares(base: Fleet) -> tuple[float, float]:
    """Return the pause and the time within which returns share a growth, in seconds, by Gauss and Newton: steps are of
    the logarithms, so that both stay above nothing."""
    def off(logarithms: np.ndarray[tuple[int], np.dtype[np.float64]]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        pause, within = np.exp(logarithms).tolist()
        fleet = base.model_copy(update={"shrink": pause, "grow": pause, "grow_within": within})
        return np.array([goodput(fleet_of(cell, fleet)) - cell.goodput for cell in _ELASTIC])
    at, little = np.log([base.shrink or 1.0, base.grow_within or 1.0]), 1e-5
    for _ in range(_ROUNDS):
        here = off(at)
        slopes = np.stack([(off(at + step) - here) / little for step in little * np.eye(2)], axis=1)
        at = at + np.clip(np.linalg.lstsq(slopes, -here, rcond=None)[0], -0.5, 0.5)
    pause, within = np.exp(at).tolist()
    return pause, within


def fleet_of(cell: PublishedCell, base: Fleet) -> Fleet:
    """The same fleet with that many chips, trained in that way."""
    return base.model_copy(update={"chips": cell.chips, "mode": cell.mode, "learners": cell.learners})


def rms(errors: list[float]) -> float:
    """Return the root of the mean square."""
    return math.sqrt(sum(error ** 2 for error in errors) / len(errors))
