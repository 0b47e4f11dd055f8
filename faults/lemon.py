"""Lemons: nodes that fail again, whoever starts them."""

from __future__ import annotations

import math
import signal
from typing import ClassVar, Literal

from pydantic import Field

from diloco_chaos.faults.base import FaultContext, Observation
from diloco_chaos.faults.evidence import Effect, Evidence, Injection
from diloco_chaos.faults.process import Ending
from diloco_chaos.harness.base.units import Seconds, names, show_seconds
from diloco_chaos.harness.places.base import Ability
from diloco_chaos.harness.record.tape.events import Exit, Spawn

OURS_S = 0.5
"""Nodes of ours have no scheduler: the harness starts a lemon again so long after each end."""
_EARLY_S, _SEEN_S = 0.001, 1.0
"""A kill may be recorded so much too early, or too late; any other one is another fault's."""


class Lemon(Ending):
    """The node is broken, and not its process: this one is killed, and every later one a while after its start, whoever
    started it. Nothing more is expected of the node."""

    needs: ClassVar[frozenset[Ability]] = frozenset({"kill", "restart"})

    kind: Literal["lemon"] = "lemon"
    after_start: Seconds = 0.8
    """From each start to the next kill."""
    times: int | None = Field(None, ge=1, le=1000)
    """So many of the node's processes are killed. None: all, to the end of the run."""

    def inject(self, hit: FaultContext) -> Observation:
        """Kill every target, and have it killed again."""
        for target in self.targets:
            ours = hit.spec(target).program is None
            again = OURS_S if ours and self.restart_after is None else self.restart_after
            hit.cluster.spoil(target, self.after_start, again, self.times)
        return {}

    def verify(self, run: Evidence, on: Injection) -> Effect:
        """Each process ended by SIGKILL: the first at once, and those that were started later in their time."""
        said = []
        for target in self.targets:
            born = {event.incarnation: event.t for event in run.tape.of(Spawn, node="harness")
                    if event.target == target and event.t > on.began}
            ends = [event for event in run.tape.of(Exit, node="harness") if event.target == target
                    and event.killed and event.status == -signal.SIGKILL and event.t >= on.began - 0.1
                    and event.t >= born.get(event.incarnation, -math.inf) + self.after_start - _EARLY_S]
            if not ends:
                return Effect(False, f"{target} was not there to be killed")
            if lives := self._spared(run, target, on.began, {end.incarnation for end in ends}):
                return Effect(False, f"{target}.{lives[0]} was started, and lived on")
            trusted = sum(end.trusted for end in ends)
            again = f", and its scheduler started it again {_times(trusted)}" if trusted else ""
            said.append(f"{target} failed {_times(len(ends))} (SIGKILL){again}")
        return Effect(True, "; ".join(said))

    def _spared(self, run: Evidence, target: str, began: float, ended: set[int]) -> list[int]:
        """Return the processes that were there for long enough and were not killed, nor ended by themselves."""
        gone = {event.incarnation for event in run.tape.of(Exit, node="harness") if event.target == target}
        later = [event for event in run.tape.of(Spawn, node="harness") if event.target == target and event.t > began]
        first = len(ended - {event.incarnation for event in later})
        meant = later if self.times is None else later[:self.times - first]
        return [event.incarnation for event in meant if event.incarnation not in ended | gone
                and event.t + self.after_start + _SEEN_S < run.end]

    def describe(self) -> str:
        """Return what the fault does, in words for people."""
        times = "for good" if self.times is None else _times(self.times)
        verb = "fails" if len(self.targets) == 1 else "fail"
        return f"{names(self.targets)} {verb} {times}, {show_seconds(self.after_start)} after each start"

    def expected_lost_time(self) -> float:
        """Return infinity: nothing more is expected of it."""
        return float("inf")

    def expected_duration(self) -> float | None:
        """Return None: it has no end that the plan knows."""
        return None

    def starts_process(self) -> bool:
        """None that has to be merged from."""
        return False


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
