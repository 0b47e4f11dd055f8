"""How well times from different machines can be compared: each node writes its tape by its own machine's clock.

The harness compares its clock with theirs all through a run, and records what it finds (`clock`). Where all nodes are
on one machine there is one clock, and nothing is recorded.
"""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from diloco_chaos.harness.record.tape.events import Clock
from diloco_chaos.harness.record.tape.reading import Tape

WRITTEN_S = 1e-4
"""Times are written to the microsecond, each by its own process: sums of them may differ by less than this."""
TOO_FAR_S = 0.25
"""Clocks that are not known better than that tell nothing of what came first."""


class ClockAgreement(NamedTuple):
    """The agreement between the clocks of one run's nodes."""

    worst: tuple[tuple[str, float], ...] = ()
    """The two nodes whose times are known least, and the seconds by which they may be wrong."""

    @property
    def apart(self) -> float:
        """Seconds by which times of two nodes may differ that were the same moment."""
        return sum(seconds for _, seconds in self.worst)

    @property
    def tolerance(self) -> float:
        """The same, with what writing them down costs."""
        return self.apart + WRITTEN_S

    def allowed(self) -> str:
        """Return what a bound adds for the clocks, as text for people; empty where there is one clock."""
        return f", give or take {self.apart * 1e3:.1f} ms of their clocks" if self.apart else ""

    def words(self) -> str:
        """Return how accurately the worst clocks are known, in milliseconds, as text for people."""
        return " and ".join(f"{node}'s to {seconds * 1e3:.0f} ms" for node, seconds in self.worst)


def clocks(tape: Tape) -> ClockAgreement:
    """Return the clocks as the harness has measured them: the seconds that a node's clock was ahead of what its tape
    was begun with, and what that was known to. Drift over the run is a part of it."""
    wrong: dict[str, float] = defaultdict(float)
    for event in tape.of(Clock, node="harness"):
        wrong[event.target] = max(wrong[event.target], abs(float(event.ahead)) + float(event.error))
    return ClockAgreement(tuple(sorted(wrong.items(), key=lambda entry: entry[1], reverse=True)[:2]))
