"""What a plan's faults leave of the time, as far as the plan alone tells; and how often a checkpoint is worth it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from faults import Fault, Join, Partition
from harness.trainer.config import BLOCKING, SYNCHRONOUS, TrainerConfig

CHECKPOINT_S = 0.005
"""What a checkpoint of data parallelism costs, while the state goes to the hub and is committed (docs/figures.md)."""


def predicted(cluster: TrainerConfig, faults: Sequence[Fault]) -> float:
    """Goodput that the faults leave: the share of learner time that trains something that lasts."""
    nominal = cluster.nominal_s
    if nominal <= 0:
        return 1.0
    if cluster.mode in BLOCKING or cluster.mode in SYNCHRONOUS:
        return nominal / (nominal + _stands_still(cluster, faults, nominal))
    learners = set(cluster.names)
    lost = sum(min(fault.downtime(), nominal) * len(learners.intersection(fault.targets)) for fault in faults)
    return max(0.0, 1 - lost / (nominal * cluster.learners))


def checkpoint_every(cluster: TrainerConfig, faults: Sequence[Fault]) -> int:
    """Steps between two checkpoints by Young (1974) and Daly (2006): the square root of twice the cost of one times the
    mean time between failures. As often as snapshots are taken where nothing fails."""
    nominal = cluster.nominal_s
    losses = sum(outage.breaks for outage in _outages(cluster, faults))
    if not nominal or not losses:
        return math.ceil((cluster.budget - cluster.warm_start) / cluster.snapshots)
    return max(1, round(math.sqrt(2 * CHECKPOINT_S * nominal / losses) / cluster.step_time))


def done_again(cluster: TrainerConfig) -> float:
    """Seconds of work that data parallelism does twice for a loss: half the interval of its checkpoints."""
    return cluster.checkpoint_every * cluster.step_time / 2


def regrouping(cluster: TrainerConfig, down: float, most: float) -> float:
    """Seconds of the whole group that a loss costs elastic data parallelism: it stands still to notice and to regroup,
    goes on with one less, and regroups again. `down`: how long somebody is gone; `most`: until the end at most."""
    notice = cluster.silence + cluster.reconfiguration
    return (min(down, notice) + max(0.0, min(down, most) - notice) / cluster.learners
            + (cluster.reconfiguration if math.isfinite(down) else 0.0))


def _stands_still(cluster: TrainerConfig, faults: Sequence[Fault], nominal: float) -> float:
    """Seconds without progress, over the whole group: nobody goes on without somebody who is gone, stopped or slow."""
    alone = [outage for outage in _outages(cluster, faults) if not outage.breaks]
    broken = [outage for outage in _outages(cluster, faults) if outage.breaks]
    if cluster.mode == "elastic_data_parallel":
        return _covered(alone) + sum(regrouping(cluster, outage.length, nominal) for outage in broken)
    again = 0.0 if cluster.mode in BLOCKING else done_again(cluster) * len(broken)
    return min(nominal, _covered(alone + broken)) + again


class _Outage(NamedTuple):
    at: float | None
    """When it comes, if the plan knows."""
    length: float
    breaks: bool
    """Somebody is gone; else only stopped or slow."""


def _outages(cluster: TrainerConfig, faults: Iterable[Fault]) -> list[_Outage]:
    return [_Outage(fault.at, length, fault.downs or isinstance(fault, Partition) or length > cluster.silence)
            for fault in faults if not isinstance(fault, Join)
            and (length := fault.duration or 0.0 if isinstance(fault, Partition) else fault.downtime()) > 0
            for _ in set(fault.targets) & set(cluster.names)]


def _covered(outages: Sequence[_Outage]) -> float:
    """Seconds in which anybody is out: those whose time is known count once where they overlap."""
    covered, until = sum(outage.length for outage in outages if outage.at is None), 0.0
    for at, length in sorted((outage.at, outage.length) for outage in outages if outage.at is not None):
        covered += max(0.0, at + length - max(until, at))
        until = max(until, at + length)
    return covered
