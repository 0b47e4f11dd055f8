"""`--step-time`: another pace than the scenario's, for a machine that is slower than the one it was written on."""

from __future__ import annotations

import math
import os

from pydantic import ValidationError

from diloco_chaos.chaos.scenario.plan import Plan
from diloco_chaos.harness.base.errors import UserError, first
from diloco_chaos.harness.base.units import LONGEST_S, seconds
from diloco_chaos.harness.places.place import MOST_LOAD
from diloco_chaos.harness.trainers.api.trainer import TrainerError

AUTO = "auto"
_GRID_S = 0.02
"""Paces are rounded up to multiples of it, so that references are found again."""


class PaceError(UserError):
    """A pace that can't be; the message says why."""


def duration(text: str) -> float:
    """Seconds, more than none.

    Raises:
        PaceError: it is no such thing.
    """
    try:
        value = float(seconds(text))
    except ValueError as error:
        raise PaceError(str(error)) from error
    if not 0 < value <= LONGEST_S:
        raise PaceError(f"it must be more than 0s, and {LONGEST_S:g}s at most")
    return value


def paced(plan: Plan, pace: str, most_load: float = MOST_LOAD) -> Plan:
    """The plan at this pace; `auto`: as slow as this machine needs where the learners' steps may have this share of its
    processors, and never faster than the scenario says. A slower one has as much longer until its deadline.

    Raises:
        PaceError: it can't run at that pace.
    """
    wanted = max(plan.cluster.step_time, _sustainable(plan, most_load)) if pace == AUTO else duration(pace)
    try:
        slower = plan.cluster.model_dump(mode="json") | {"step_time": f"{wanted!r}s"}
        cluster = type(plan.cluster).model_validate(slower)
    except ValidationError as error:
        raise PaceError(first(error)) from error
    longer = max(0.0, cluster.nominal_s - plan.cluster.nominal_s)
    return plan.model_copy(update={"cluster": cluster, "deadline": min(LONGEST_S, plan.deadline + longer)})


def _sustainable(plan: Plan, most_load: float) -> float:
    cores, cluster = len(os.sched_getaffinity(0)), plan.cluster
    try:
        takes = plan.trainer.calibrated(cores)
    except TrainerError as error:
        raise PaceError(str(error)) from error
    if takes is None:
        return 0.0
    speeds = sum(cluster.speeds) if cluster.speeds else cluster.learners
    needed = speeds * takes / cores / most_load
    return math.ceil(needed / _GRID_S - 1e-9) * _GRID_S
