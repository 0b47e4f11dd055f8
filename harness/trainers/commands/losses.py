"""The curve of a loss that workers tell with their rounds. Pure.

What one round's batch costs says little: a point is the median of what all told in a stretch of rounds, twenty of which
are a run.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import median

from diloco_chaos.harness.record.tape.events import Step
from diloco_chaos.harness.trainers.api.trainer import ToldLoss

POINTS = 20


def curve(steps: Iterable[Step], rounds: int) -> Sequence[ToldLoss]:
    """One point for each twentieth of `rounds` in which somebody told a loss, at its last round."""
    stretches: dict[int, list[tuple[Step, float]]] = {}
    for step in steps:
        if step.loss is not None and math.isfinite(step.loss) and 1 <= step.step <= rounds:
            stretches.setdefault(-(-step.step * POINTS // rounds), []).append((step, step.loss))
    return [ToldLoss(number, max(step.step for step, _ in stretch), max(step.t for step, _ in stretch),
                     median(loss for _, loss in stretch)) for number, stretch in sorted(stretches.items())]
