"""Tapes that lack their last moments: the node's machine was lost while they were still on the way. Other nodes may
have heard from it what its tape does not say.

Of a node that was merely killed the tape is whole, up to a torn line: it was written before any other node heard of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from diloco_chaos.harness.base.tensors import Numbers, np
from diloco_chaos.harness.record.tape.events import Exit, Hello, Lost, Step
from diloco_chaos.harness.record.tape.reading import Process, Tape
from diloco_chaos.harness.record.tape.series import Series, values

if TYPE_CHECKING:  # see harness/base/tensors.py
    from numpy.typing import NDArray

_ON_THE_WAY_S = 0.25
"""So long after it was written a line of a tape is here, where its machine answers."""


class Truncated(NamedTuple):
    """The facts that are known of one such process."""

    since: float
    """From when on its tape may lack something, seconds: where it ends, or it was heard of last."""
    until: float
    """When it was lost."""
    fastest: float
    """Seconds of a quick step."""
    tokens: float
    """Of its largest step."""
    last: int
    """The last step on its tape."""

    def steps(self, moments: Numbers) -> Numbers:
        """Return how many steps more the process can have made by these moments, at the most."""
        went_on = np.minimum(moments, self.until) - self.since
        return np.where(went_on > 0, np.floor(went_on / self.fastest) + 1 if self.fastest > 0 else np.inf, 0.0)

    def known(self, steps: NDArray[np.int64], moments: Numbers) -> NDArray[np.int64]:
        """Return for steps that are said to be made by these moments the last one that must be on its tape: the step
        itself, but the tape's last one where the tape may lack it."""
        lacking = steps <= self.last + self.steps(moments)
        return np.where(lacking, np.minimum(steps, self.last), steps)


def truncated(tape: Tape, steps: Mapping[Process, Series[Step]], tolerance: float = 0.0) -> dict[Process, Truncated]:
    """Return what may be missing of every process whose machine was lost.

    Args:
        tape: of the run.
        steps: step events of each process, in order.
        tolerance: seconds by which times of two nodes may differ that were the same moment.
    """
    by_process = {}
    for exited in tape.of(Exit, node="harness"):
        process = exited.process
        if not exited.lost or process not in steps:
            continue
        heard = (exited.heard or 0.0) - _ON_THE_WAY_S  # everything that it had written by then was here
        since, own = max(tape.ends[process], heard), steps[process]
        by_process[process] = Truncated(since - tolerance, _until(tape, process, since, exited.t) + tolerance,
                                        _fastest(steps, process), float(max(values(own, "tokens"))),
                                        max(values(own, "step")))
    return by_process


def _until(tape: Tape, process: Process, since: float, until: float) -> float:
    """Return the time in seconds when no other node can have heard of the process any more: the harness noticed its
    end, or its peer had given it up before."""
    for event in tape.of(Hello, Lost):
        if since <= event.t <= until and (event.learner, event.incarnation) == process:
            return until if isinstance(event, Hello) else event.t
    return until


def _fastest(steps: Mapping[Process, Series[Step]], process: Process) -> float:
    """Seconds of the quickest step of this process, or of any where it made no two."""
    took = {each: float(np.diff(np.sort(series.t)).min()) for each, series in steps.items() if len(series) > 1}
    return took.get(process, min(took.values(), default=0.0))
