"""The losses that workers tell with their rounds: numbers or not, and the curve that they make. Pure.

What one round's batch costs says little: a point is the median of what was told in a stretch of rounds, twenty of which
are a run. A loss that is no number counts as larger than any number.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import median, stdev
from typing import Literal

from diloco_chaos.harness.record.tape.events import Step
from diloco_chaos.harness.trainers.api.trainer import ToldLoss

POINTS = 20
NoNumber = Literal["nan", "inf", "-inf"]
_OF_A_MEDIAN = math.sqrt(math.pi / 2)
"""Standard error of a median, where that of the mean is one."""


def told_loss(loss: float | None) -> tuple[float | None, NoNumber | None]:
    """Return a loss as a number, and what it is where it is none; both are None where nothing was told."""
    if loss is None or math.isfinite(loss):
        return loss, None
    return None, "nan" if math.isnan(loss) else "inf" if loss > 0 else "-inf"


def curve(steps: Iterable[Step], rounds: int) -> Sequence[ToldLoss]:
    """One point for each twentieth of `rounds` in which a worker told a loss, at its last round."""
    stretches: dict[int, list[tuple[Step, float]]] = {}
    for step in steps:
        loss = math.inf if step.no_number else step.loss
        if loss is not None and not math.isnan(loss) and 1 <= step.step <= rounds:
            stretches.setdefault(-(-step.step * POINTS // rounds), []).append((step, loss))
    return [ToldLoss(number, max(step.step for step, _ in stretch), max(step.t for step, _ in stretch),
                     median(loss for _, loss in stretch), _error([loss for _, loss in stretch]))
            for number, stretch in sorted(stretches.items())]


def curves(steps: Iterable[Step], rounds: int) -> Mapping[str, Sequence[ToldLoss]]:
    """The curve of every worker, or rank of one, that told a loss."""
    own: dict[str, list[Step]] = {}
    for step in steps:
        own.setdefault(step.member, []).append(step)
    return {worker: points for worker, mine in own.items() if (points := curve(mine, rounds))}


def _error(losses: Sequence[float]) -> float:
    """Standard error of the median of these losses; 0 where that can't be known."""
    if len(losses) < 2 or not all(map(math.isfinite, losses)):
        return 0.0
    return _OF_A_MEDIAN * stdev(losses) / math.sqrt(len(losses))
