"""A trace's quantiles against those of what was fitted to it."""

from __future__ import annotations

import numpy as np

from diloco_chaos.chaos.report.forms.quantiles import DrawnQuantiles, QuantilePanel, quantiles_svg
from diloco_chaos.harness.failures.fitting import Fitted
from diloco_chaos.harness.failures.lengths import Floats, Lengths
from diloco_chaos.harness.failures.likeness import waits
from diloco_chaos.harness.failures.source import Source
from diloco_chaos.harness.failures.trace import DAY_S, Trace

_TITLES = ("how long repairs take", "from a failure to the next", "from a repair to the node's next failure")
"""Of `Waits`."""
_SHARES = np.linspace(0.025, 0.975, 39)
_BETWEEN = (0.05, 0.5, 0.95)
_LEAST_S = 60.0
"""Nothing is drawn as shorter: failures of one burst come at one moment, and the axis is logarithmic."""
_MARKS = {60.0: "1 min", 600.0: "10 min", 3600.0: "1 h", 10 * 3600.0: "10 h", 10 * DAY_S: "10 d", 100 * DAY_S: "100 d",
          1000 * DAY_S: "1000 d"}


def plotted(trace: Trace, found: Fitted, replications: int, seed: int) -> str:
    """Return a drawing of a panel for each quantity of which the trace has two values or more; without any: empty."""
    seen = waits(trace.replayed(trace.nodes, trace.length_s))
    means = Lengths(found.in_service_s), Lengths(found.away_s)
    models = {"fitted": Source(*means, found.process), "exponential": Source(*means)}
    drawn = {name: [waits(source.course(trace.nodes, trace.length_s, seed + number)) for number in range(replications)]
             for name, source in models.items()}
    panels = []
    for number, title in enumerate(_TITLES):
        values = {name: [one[number] for one in courses if len(one[number]) > 1] for name, courses in drawn.items()}
        if len(seen[number]) > 1 and all(values.values()):
            panels.append(QuantilePanel(title, _quantiles(seen[number]).tolist(),
                                        [_drawn(name, each) for name, each in values.items()], _MARKS))
    return quantiles_svg(f"Quantiles of {len(trace.starts)} outages of {trace.nodes} nodes, and of models "
                         f"(nine of ten replications in the band)", panels) if panels else ""


def _drawn(name: str, courses: list[Floats]) -> DrawnQuantiles:
    """Return the quantiles of each course's values, as quantiles over the courses."""
    low, middle, high = np.quantile([_quantiles(values) for values in courses], _BETWEEN, axis=0).tolist()
    return DrawnQuantiles(name, middle, low, high)


def _quantiles(values: Floats) -> Floats:
    quantiles: Floats = np.maximum(np.quantile(values, _SHARES), _LEAST_S)
    return quantiles
