"""Where a fleet's failures come from: distributions, a process, or a trace."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from diloco_chaos.harness.failures.course import Course, drawn_course
from diloco_chaos.harness.failures.drawing import drawn_by
from diloco_chaos.harness.failures.lengths import Lengths
from diloco_chaos.harness.failures.process import FailureProcess
from diloco_chaos.harness.failures.reading import read_trace

How = Literal["fitted", "weeks", "replay"]
HOW: tuple[How, ...] = ("fitted", "weeks", "replay")

trace_of = lru_cache(maxsize=2)(read_trace)


class Source(NamedTuple):
    """Failures of slices; two fleets with the same source have the same failures at the same seed."""

    served: Lengths
    """For how long a slice is in service, each time."""
    repaired: Lengths
    """For how long it is then away."""
    process: FailureProcess | None = None
    """Of which those two say the means; None: each slice fails independently."""
    trace: str = ""
    """A file whose outages come instead; empty: none."""
    trace_nodes: int | None = None
    """Of the trace's cluster; None: those that it names."""
    how: How = "fitted"
    """`weeks`: drawn from the trace by weeks; `replay`: one after the other."""

    def course(self, slices: int, horizon: float, seed: int) -> Course:
        """Return the course of so many slices up to `horizon` seconds.

        Raises:
            TraceError: the trace can't be read.
            ValueError: the process can't be as asked.
        """
        if self.trace and self.how != "fitted":
            return self._traced(slices, horizon, seed)
        if self.process is not None:
            return drawn_by(self.process, slices, self.served.mean_s, self.repaired.mean_s, horizon, seed)
        return drawn_course(slices, self.served, self.repaired, horizon, seed)

    def _traced(self, slices: int, horizon: float, seed: int) -> Course:
        trace = trace_of(Path(self.trace), self.trace_nodes)
        if self.how == "weeks":
            course = trace.by_weeks(slices, horizon, seed)
        else:  # the first replication is the trace itself
            begin = np.random.default_rng([seed, 0]).random() * trace.length_s if seed else 0.0
            course = trace.replayed(slices, horizon, begin)
        if self.repaired.mean_s:
            return course
        lost = course.steps < 0  # who is lost is replaced at once
        return Course(course.times[lost], course.steps[lost], course.slices[lost], course.again[lost],
                      np.ones(slices, np.bool_), horizon)
