"""Hangs: a process whose main thread stands, and that looks alive."""

from __future__ import annotations

import time
from typing import ClassVar, Literal

from diloco_chaos.faults.base import DURATIONS, Drawn, Fault, FaultContext, Observation, unable
from diloco_chaos.faults.evidence import Effect, Evidence, Injection
from diloco_chaos.faults.inner import OfProcess
from diloco_chaos.harness.base.units import names
from diloco_chaos.harness.places.base import Ability
from diloco_chaos.harness.places.capabilities import MainThreads
from diloco_chaos.harness.preload.page import Holding

_TRIES_S, _AGAIN_S = 5.0, 0.005
_KINDS = {"gil": "with the GIL: all threads of Python stood", "nothing": "without the GIL: other threads went on"}
_NEVER = {"gil": "it did not come back to Python: say `holding: nothing`",
          "nothing": "it was never found waiting in a call: leave `holding` out"}


class _Standing(Fault):
    needs: ClassVar[frozenset[Ability]] = frozenset({"hang"})
    frees: ClassVar[bool] = True
    halts_target: ClassVar[bool] = True
    may_end_target: ClassVar[bool] = True  # a watchdog that notices it
    occupies: ClassVar[str] = "process"
    shown_as = "paused"

    holding: Holding = "gil"
    """`gil`: it stands with Python's lock, so that every thread of Python's stands, and only those in C++ and other
    processes go on. `nothing`: it stands in a call that has given the lock back; all others go on."""

    @property
    def of_node(self) -> str:
        """Return the process of the node that is meant; empty: its first one."""
        return ""

    def inject(self, hit: FaultContext) -> Observation:
        """Make every target stand."""
        return unable([hit.having(MainThreads).hang(target, f"{hit.id}.{target}", self.of_node, self.holding)
                       for target in self.targets])

    def observe(self, hit: FaultContext) -> Observation:
        """Wait until each stands: a main thread does not always hold what it is to hold."""
        until = time.monotonic() + min(_TRIES_S, (self.duration or 0.0) / 2)
        while True:
            pids = [hit.having(MainThreads).press(f"{hit.id}.{target}") for target in self.targets]
            if all(pids):
                return {"ok": True, "pids": ", ".join(map(str, pids))}
            if time.monotonic() > until:
                return {"ok": False, "why": f"no main thread stood: {_NEVER[self.holding]}"}
            time.sleep(_AGAIN_S)

    def undo(self, hit: FaultContext) -> None:
        """Let them go on."""
        for target in self.targets:
            hit.having(MainThreads).release(f"{hit.id}.{target}")

    def verify(self, run: Evidence, on: Injection) -> Effect:
        """A main thread said that it stood."""
        if why := on.observed.get("why"):
            return Effect(False, str(why))
        if not on.observed.get("pids"):
            return Effect(False, "no main thread said that it stood")
        return Effect(True, f"the main thread of pid {on.observed['pids']} stood, {_KINDS[self.holding]}")

    def describe(self) -> str:
        """Return what the fault does, in words for people."""
        of = f"{self.of_node} of " if self.of_node else ""
        held = "holding the GIL" if self.holding == "gil" else "in a call"
        return f"{of}{names(self.targets)} hang{'s' * (len(self.targets) == 1)}, {held}, {self.describe_duration()}"

    def expected_lost_time(self) -> float:
        """Return its duration in seconds: it does nothing meanwhile."""
        return self.duration or 0.0


class Hang(_Standing):
    """The main thread of a node's first process stands, and the process looks alive: it is there, its connections
    stand, and what another thread or process sends as a sign of life goes on, where it needs no GIL."""

    drawn = Drawn(270, {"for": DURATIONS, "holding": ("gil", "nothing")}, family="slow", simulated=False)

    kind: Literal["hang"] = "hang"


class HangProcess(_Standing, OfProcess):
    """The same of one of the processes that a node has started."""

    needs: ClassVar[frozenset[Ability]] = frozenset({"hang", "signal_process"})
    kind: Literal["hang_process"] = "hang_process"

    @property
    def of_node(self) -> str:
        """Return the process that the scenario names."""
        return self.process
