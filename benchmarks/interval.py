"""How sure a mean of few is."""

from __future__ import annotations

import math
from statistics import mean, stdev
from typing import Any

from diloco_chaos.chaos.report.chance import quantile


def interval(values: list[float]) -> dict[str, Any]:
    """Mean with its 95% interval."""
    count = len(values)
    if count < 2:
        return {"n": count, "mean": values[0] if values else None, "values": values}
    half = quantile(0.95, count - 1) * stdev(values) / math.sqrt(count)
    return {"n": count, "mean": round(mean(values), 5), "low": round(mean(values) - half, 5),
            "high": round(mean(values) + half, 5), "sd": round(stdev(values), 5),
            "values": [round(value, 5) for value in values]}
