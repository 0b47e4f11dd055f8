"""What nobody can know of a node whose machine was lost with all that was on it: the last moments of its tape were
still on the way. Others may have heard from it what its tape does not say.

Of a node that was merely killed the tape is whole, up to a torn line: it was written before anybody was told.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from diloco_chaos.chaos.scenario.model import SYNCER
from diloco_chaos.harness.base.tensors import Numbers
from diloco_chaos.harness.record.tape.event import Event
from diloco_chaos.harness.record.tape.packed import times, values
from diloco_chaos.harness.record.tape.reading import Tape

_Node = tuple[str, int]
_ON_THE_WAY_S = 0.25
"""So long after it was written a line of a tape is here, where its machine answers."""


class Untold(NamedTuple):
    """Of one process."""

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
        """How many steps more it can have made by these moments, at the most."""
        went_on = np.minimum(moments, self.until) - self.since
        return np.where(went_on > 0, np.floor(went_on / self.fastest) + 1 if self.fastest > 0 else np.inf, 0.0)

    def may_have_made(self, step: int, moment: float) -> bool:
        """Whether this step may be one that its tape does not say, by this moment."""
        return step <= self.last + float(self.steps(np.asarray(moment)))


def untold(tape: Tape, steps: Mapping[_Node, Sequence[Event]], tolerance: float = 0.0) -> dict[_Node, Untold]:
    """Of every process whose machine was lost.

    Args:
        tape: of the run.
        steps: step events of each process, in order.
        tolerance: seconds by which times of two nodes may differ that were the same moment.
    """
    found = {}
    for event in tape.of("exit", node="harness"):
        node = event["target"], event["incarnation"]
        if not event.fields.get("lost") or node not in steps:
            continue
        heard = float(event.fields.get("heard") or 0.0) - _ON_THE_WAY_S  # by then everything was here that it had told
        since = max(tape.ends[node], heard)
        found[node] = Untold(since - tolerance, _until(tape, node, since, event.t) + tolerance, _fastest(steps, node),
                             float(max(values(steps[node], "tokens"))), max(values(steps[node], "step")))
    return found


def _until(tape: Tape, node: _Node, since: float, until: float) -> float:
    """When nobody can have heard of it any more: the harness noticed its end, or its peer had given it up before."""
    for event in tape.of("hello", "lost", node=SYNCER):
        if since <= event.t <= until and (event["learner"], event.fields.get("incarnation")) == node:
            return until if event.event == "hello" else event.t
    return until


def _fastest(steps: Mapping[_Node, Sequence[Event]], node: _Node) -> float:
    """Seconds of the quickest step of this process, or of any where it made no two."""
    took = {one: float(np.diff(np.sort(np.asarray(times(events)))).min()) for one, events in steps.items()
            if len(events) > 1}
    return took.get(node, min(took.values(), default=0.0))
