"""The curve of a loss that workers tell with their rounds. Pure.

What one round's batch costs says little: a point is the median of what all told in a stretch of rounds, twenty of which
are a run.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import median

from diloco_chaos.harness.record.tape.event import Event
from diloco_chaos.harness.trainers.api.trainer import ToldLoss

POINTS = 20


def curve(steps: Iterable[Event], rounds: int) -> Sequence[ToldLoss]:
    """One point for each twentieth of `rounds` in which somebody told a loss, at its last round."""
    stretches: dict[int, list[Event]] = {}
    for step in steps:
        loss = step.fields.get("loss")
        if isinstance(loss, int | float) and math.isfinite(loss) and 1 <= step["step"] <= rounds:
            stretches.setdefault(-(-step["step"] * POINTS // rounds), []).append(step)
    return [ToldLoss(number, max(step["step"] for step in told), max(step.t for step in told),
                     median(step["loss"] for step in told)) for number, told in sorted(stretches.items())]
