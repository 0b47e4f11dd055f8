"""Lemons: nodes that fail again, whoever starts them."""

from __future__ import annotations

import math
import signal
from typing import ClassVar, Literal

from pydantic import Field

from diloco_chaos.faults.base import Drawn, FaultContext, Observation
from diloco_chaos.faults.evidence import Effect, Evidence, Injection
from diloco_chaos.faults.processes.process import Ending
from diloco_chaos.harness.base.units import Seconds, names, show_seconds
from diloco_chaos.harness.places.base import Ability
from diloco_chaos.harness.record.tape.events import Exit, Spawn

OURS_S = 0.5
"""Nodes of ours have no scheduler: the harness starts a lemon again so long after each end."""
_EARLY_S, _SEEN_S = 0.001, 1.0
"""A kill may be recorded so much too early, or too late; any other one is another fault's."""


class Lemon(Ending):
    """The node is broken, and not its process: this one is killed, and every later one a while after its start, whoever
    started it; to the end of the run, `times` times, or `for` so long. Nothing more is expected of the node."""

    needs: ClassVar[frozenset[Ability]] = frozenset({"kill", "restart"})
    endless: ClassVar[bool] = True
    timed: ClassVar[bool] = True
    drawn = Drawn(25, {"after_start": ("800ms", "300ms", "1500ms")}, family="ends", asked=True,
                  ways=({"times": 2}, {"times": 3}, {"for": "3s"}))

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
            hit.cluster.spoil(target, self.after_start, again, self.times, self.duration)
        return {}

    def undo(self, hit: FaultContext) -> None:
        """Let every target live."""
        for target in self.targets:
            hit.cluster.mend(target)

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
            if lives := self._spared(run, on, target, {end.incarnation for end in ends}):
                return Effect(False, f"{target}.{lives[0]} was started, and lived on")
            trusted = sum(end.trusted for end in ends)
            again = f", and its scheduler started it again {_times(trusted)}" if trusted else ""
            said.append(f"{target} failed {_times(len(ends))} (SIGKILL){again}")
        return Effect(True, "; ".join(said))

    def _spared(self, run: Evidence, on: Injection, target: str, ended: set[int]) -> list[int]:
        """Return the processes that were there for long enough and were not killed, nor ended by themselves."""
        gone = {event.incarnation for event in run.tape.of(Exit, node="harness") if event.target == target}
        later = [event for event in run.tape.of(Spawn, node="harness") if event.target == target and event.t > on.began]
        first = len(ended - {event.incarnation for event in later})
        meant = later if self.times is None else later[:self.times - first]
        over = min(run.until(on), math.inf if self.duration is None else on.began + self.duration)
        return [event.incarnation for event in meant if event.incarnation not in ended | gone
                and event.t + self.after_start + _SEEN_S < over]

    def describe(self) -> str:
        """Return what the fault does, in words for people."""
        lasts = "for good" if self.duration is None else self.describe_duration()
        times = lasts if self.times is None else _times(self.times)
        verb = "fails" if len(self.targets) == 1 else "fail"
        return f"{names(self.targets)} {verb} {times}, {show_seconds(self.after_start)} after each start"

    def expected_lost_time(self) -> float:
        """Return infinity: nothing more is expected of it."""
        return float("inf")

    def expected_duration(self) -> float | None:
        """Return None: it has no end that the plan knows."""
        return None

    def is_final(self) -> bool:
        """Unless it is over at some time: then a process that is started lives."""
        return self.times is None and self.duration is None

    def starts_process(self) -> bool:
        """None that has to be merged from."""
        return False


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
