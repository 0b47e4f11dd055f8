"""What a plan's faults leave of the time, as far as the plan alone tells; and how often a checkpoint is worth it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import mul
from statistics import mean
from typing import NamedTuple

from diloco_chaos.faults import Fault
from diloco_chaos.faults.processes.process import TYPICAL_START_S
from diloco_chaos.harness.trainers.api.settings import TrainerSettings

_ROUNDS = 200
"""Until what is lost and how long training takes agree; with seven of eight learners dead within a billionth."""


def predicted(cluster: TrainerSettings, faults: Sequence[Fault]) -> float:
    """Goodput that the faults leave: the fraction of learner time whose work is merged.

    Whoever is gone leaves the others more to do, and training takes longer: what is lost until then is lost of that.
    Where all wait for all, the slowest sets the pace.
    """
    if cluster.nominal_s <= 0:
        return 1.0
    speeds = [cluster.speed_of(name) for name in cluster.names]
    paces = [min(speed, min(speeds) * cluster.coupling.ahead) for speed in speeds]
    nominal = cluster.nominal_s * sum(speeds) / sum(paces)
    outages, end = _outages(cluster, faults), nominal
    for _ in range(_ROUNDS):
        before, end = end, nominal + (_stands_still(cluster, outages, end) if _waiting(cluster) else
                                      sum(map(mul, speeds, _away(cluster, outages, end))) / sum(speeds))
        if end == before:
            break
    if not _waiting(cluster):
        return mean(1 - away / end for away in _away(cluster, outages, end))
    return mean(pace / speed for pace, speed in zip(paces, speeds, strict=True)) * nominal / end


def _waiting(cluster: TrainerSettings) -> bool:
    return cluster.coupling.waits != "nobody"


def losses(cluster: TrainerSettings, faults: Sequence[Fault]) -> int:
    """Return how often a plan's faults leave other learners without one."""
    return sum(outage.breaks for outage in _outages(cluster, faults))


def regrouping(cluster: TrainerSettings, down: float, most: float, learners: int = 1, unseen: float = 0.0) -> float:
    """Seconds of the whole group that a loss costs one that forms anew: it stands still until it is seen and those
    who are left have regrouped, goes on with so many less, and regroups again when they are back. `down`: how long they
    are gone; `most`: until the end at most; `unseen`: how long their connections stand."""
    if down <= unseen:
        return down + cluster.coupling.regroup_s
    alone = unseen + cluster.coupling.regroup_s
    if down <= alone:  # they are back when the group is formed
        return alone
    return (alone + max(0.0, min(down, most) - alone) * learners / cluster.learners
            + (cluster.coupling.regroup_s if down < most else 0.0))


def _away(cluster: TrainerSettings, outages: Sequence[_Outage], end: float) -> list[float]:
    """Seconds until the end for which each learner is out."""
    return [_covered([outage for outage in outages if name in outage.learners], end) for name in cluster.names]


def _stands_still(cluster: TrainerSettings, outages: Sequence[_Outage], end: float) -> float:
    """Return the seconds without progress by the end, over the whole group: no learner goes on without one that is
    gone, stopped or slow."""
    absences = [outage for outage in outages if not outage.joins]
    alone, broken = ([outage for outage in absences if outage.breaks is breaks] for breaks in (False, True))
    if cluster.coupling.waits == "group":
        late = sum(outage.length * len(outage.learners) / cluster.learners + cluster.coupling.regroup_s
                   for outage in outages if outage.joins)
        return late + _covered(alone, end) + sum(
            regrouping(cluster, outage.length, max(0.0, end - (outage.at or 0.0)), len(outage.learners), outage.unseen)
            for outage in broken)
    again = cluster.coupling.again_s * len(broken)
    return min(cluster.nominal_s, _covered(absences, end)) + again


class _Outage(NamedTuple):
    learners: frozenset[str]
    at: float | None
    """When it comes, if the plan knows."""
    length: float
    breaks: bool
    """They are gone; else only stopped or slow."""
    joins: bool
    """They were not there before."""
    unseen: float
    """Seconds for which their connections stand all the same."""


def _outages(cluster: TrainerSettings, faults: Iterable[Fault]) -> list[_Outage]:
    """Return the outages that a plan announces. One that comes when something happens and never ends lasts as long as
    training would without it."""
    outages = []
    for fault in faults:
        cut_off = fault.cuts_off  # a learner that is cut off goes on alone, unless all wait for it
        length = fault.duration or 0.0 if cut_off and _waiting(cluster) else fault.expected_lost_time()
        struck = frozenset(fault.targets) & frozenset(cluster.names)
        joins = fault.brings_target
        at = 0.0 if joins else fault.at
        if length > 0 and struck:
            outages.append(_Outage(struck, at, min(length, cluster.nominal_s) if at is None else length,
                                   fault.stops_target or cut_off or length > cluster.heartbeat_timeout, joins,
                                   0.0 if fault.ends_connections() else cluster.coupling.unseen_s))
        if spares := frozenset(fault.joining()) & frozenset(cluster.names) - struck:
            outages.append(_Outage(spares, 0.0, (fault.at or 0.0) + TYPICAL_START_S, True, True, 0.0))
    return outages


def _covered(outages: Sequence[_Outage], end: float) -> float:
    """Seconds until the end in which anybody is out: those whose time is known count once where they overlap."""
    covered, until = sum(outage.length for outage in outages if outage.at is None), 0.0
    for at, length in sorted((outage.at, outage.length) for outage in outages if outage.at is not None):
        over = min(end, at + length)
        covered += max(0.0, over - max(until, at))
        until = max(until, over)
    return covered
