"""What nobody can know of a node whose machine was lost with all that was on it: the last moments of its tape were
still on the way. Others may have heard from it what its tape does not say.

Of a node that was merely killed the tape is whole, up to a torn line: it was written before anybody was told.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from harness.tape.event import Event
from harness.tape.packed import times, values
from harness.tape.reading import Tape
from harness.trainer_api.settings import Numbers

_Node = tuple[str, int]


class Untold(NamedTuple):
    """Of one process."""

    since: float
    """Where its tape ends, seconds."""
    until: float
    """When it was lost."""
    fastest: float
    """Seconds of the quickest step that it is known to have made."""
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


def untold(tape: Tape, steps: Mapping[_Node, Sequence[Event]]) -> dict[_Node, Untold]:
    """Of every process whose machine was lost. `steps`: step events of each, in order."""
    found = {}
    for event in tape.of("exit", node="harness"):
        node = event["target"], event["incarnation"]
        if not event.fields.get("lost") or node not in steps:
            continue
        began = np.sort(np.asarray(times(steps[node])))
        found[node] = Untold(tape.ends[node], event.t, float(np.diff(began).min()) if len(began) > 1 else 0.0,
                             float(max(values(steps[node], "tokens"))), max(values(steps[node], "step")))
    return found
