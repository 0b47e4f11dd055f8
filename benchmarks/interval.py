"""How sure a mean of few is."""

from __future__ import annotations

import math
from statistics import mean, stdev
from typing import Any

_STUDENT_T = dict(enumerate((12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
                             2.145, 2.131, 2.120, 2.110, 2.101, 2.093), start=2))
"""Two-sided 95% quantiles of Student's t for n samples; for more than these a little too much is taken."""


def interval(values: list[float]) -> dict[str, Any]:
    """Mean with its 95% interval."""
    count = len(values)
    if count < 2:
        return {"n": count, "mean": values[0] if values else None, "values": values}
    half = _STUDENT_T[min(count, max(_STUDENT_T))] * stdev(values) / math.sqrt(count)
    return {"n": count, "mean": round(mean(values), 5), "low": round(mean(values) - half, 5),
            "high": round(mean(values) + half, 5), "sd": round(stdev(values), 5),
            "values": [round(value, 5) for value in values]}
