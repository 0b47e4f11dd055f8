"""What the simulation must come to where there is a formula: interruptions without memory, groups of many slices."""

from __future__ import annotations

import math

from diloco_chaos.harness.failures.lengths import Lengths
from diloco_chaos.harness.fleet.fleet import Fleet

_EULER = 0.5772156649015329


def goodput(fleet: Fleet) -> float:
    """Share of the fleet's time that is useful training, on average.

    Losses and growths of a group are Poisson processes of rates r and s while it trains, they make it stand for p and
    q, and what happens meanwhile is taken along: it trains for 1 / (1 + r p + s q) of the time (a server that turns
    away who comes while it is busy). Where returns within w of a first are one growth, s is 1 / (w + 1 / r), and if w
    is longer than q no growth comes while it grows: (1 - s q / (1 + r p)) / (1 + r p).

    Of a rigid job with a checkpoint every c seconds that costs d, an interruption after a time t of exponential length
    leaves floor(t / (c + d)) c: on average c / (exp(r (c + d)) - 1). Where a loss makes its restart begin anew, it
    trains for the share of restarts that no loss meets: the Laplace transform of their length at r.

    Raises:
        ValueError: there is no formula for this fleet.
    """
    if fleet.shape != 1 or fleet.straggler_mtbf or fleet.spares is not None or fleet.process or fleet.trace:
        raise ValueError("no formula: it is for exponential times, without stragglers, and with spares at any time")
    group_slices = fleet.slices / fleet.groups
    losses = fleet.interruptions_per_s / fleet.groups
    pace = 1 / (1 + fleet.spread * harmonic(group_slices * fleet.chips / fleet.slices))
    if fleet.mode == "data_parallel":
        each = fleet.checkpoint_every + fleet.checkpoint_cost
        kept = losses * fleet.checkpoint_every / math.expm1(losses * each) if each else 1.0
        return pace * kept * begun(fleet)
    shrinks, grows = losses * (fleet.detection + fleet.shrink), losses * fleet.growths * fleet.grow
    trains = ((1 - grows / (1 + shrinks)) / (1 + shrinks) if fleet.grow_within > fleet.grow else
              1 / (1 + shrinks + grows))
    return pace * fleet.in_service * trains


def begun(fleet: Fleet) -> float:
    """Share of the time of a rigid job for which it does not stand to begin again."""
    losses = fleet.interruptions_per_s
    if not fleet.restart_shape:
        return 1 / (1 + losses * (fleet.detection + fleet.restart))
    return Lengths(fleet.restart, fleet.restart_shape).survives(losses) * math.exp(-losses * fleet.detection)


def harmonic(count: float) -> float:
    """The sum of 1/1 to 1/count: the mean of the largest of so many exponential variables of mean 1."""
    if count < 50:
        return sum(1 / number for number in range(1, round(count) + 1))
    return math.log(count) + _EULER + 1 / (2 * count)
