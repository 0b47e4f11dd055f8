"""Hangs: a process whose main thread stands, and that looks alive."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from diloco_chaos.faults.base import DURATIONS, Drawn, Fault, FaultContext, Observation, unable
from diloco_chaos.faults.evidence import Effect, Evidence, Injection
from diloco_chaos.faults.inner import OfProcess
from diloco_chaos.harness.base.units import names
from diloco_chaos.harness.places.base import Ability
from diloco_chaos.harness.places.capabilities import InnerMainThreads, MainThreads
from diloco_chaos.harness.preload.page import Holding, Stood

_TRIES_S, _AGAIN_S = 5.0, 0.005
_MOST = 0.9
"""Of the time that it lasts: so long a main thread may take to its next network call."""
_KINDS = {"gil": "with the GIL: all threads of Python stood", "nothing": "without the GIL: other threads went on"}
_NEVER = {"gil": "it did not come back to Python: say `holding: nothing`",
          "nothing": "it was never found waiting in a call: leave `holding` out",
          "network": "it made no network call, as where other threads do that: say `holding: nothing` instead of `in`"}


class _Standing(Fault):
    needs: ClassVar[frozenset[Ability]] = frozenset({"hang"})
    frees: ClassVar[bool] = True
    halts_target: ClassVar[bool] = True
    may_end_target: ClassVar[bool] = True  # a watchdog that notices it
    occupies: ClassVar[str] = "process"
    shown_as = "paused"

    holding: Literal["gil", "nothing"] = "gil"
    """`gil`: it stands with Python's lock, so that every thread of Python's stands, and only those in C++ and other
    processes go on. `nothing`: it stands in a call that has given the lock back; all others go on."""
    within: Literal["network"] | None = Field(None, alias="in")
    """It stands in a network call: that in which it is, or its next one."""

    @model_validator(mode="after")
    def _one_place(self) -> _Standing:
        if self.within and "holding" in self.model_fields_set:
            raise ValueError("a network call decides itself whether it holds the GIL: leave `holding` or `in` out")
        return self

    @model_serializer(mode="wrap")
    def _without_defaults(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Return the document without `in` where it is not given, which older frozen plans lack, else without
        `holding`."""
        document: dict[str, Any] = serialize(self)
        left_out = "holding" if self.within else "in"
        return {key: value for key, value in document.items() if key != left_out}

    @property
    def place(self) -> Holding:
        """Return what a main thread is to hold, or where it is to stand."""
        return self.within or self.holding

    @property
    def of_node(self) -> str:
        """Return the process of the node that is meant; empty: its first one."""
        return ""

    def inject(self, hit: FaultContext) -> Observation:
        """Make every target stand."""
        return unable([self.begin(hit, target) for target in self.targets])

    def begin(self, hit: FaultContext, target: str) -> str:
        """Make one stand; return why it can't, or nothing."""
        return hit.having(MainThreads).hang(target, f"{hit.id}.{target}", self.place)

    def observe(self, hit: FaultContext) -> Observation:
        """Wait until each stands: a main thread does not always hold what it is to hold."""
        lasts = self.duration or 0.0
        until = time.monotonic() + (_MOST * lasts if self.within else min(_TRIES_S, lasts / 2))
        while True:
            tried = [hit.having(MainThreads).press(f"{hit.id}.{target}") for target in self.targets]
            stood = [each for each in tried if each is not None]
            if len(stood) == len(tried):
                return {"ok": True, "pids": ", ".join(str(each.pid) for each in stood), **self._called(stood)}
            if time.monotonic() > until:
                return {"ok": False, "why": f"no main thread stood: {_NEVER[self.place]}"}
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
        called = f" in {on.observed['calls']}" if on.observed.get("calls") else ""
        held = str(on.observed.get("holding", self.holding))
        return Effect(True, f"the main thread of pid {on.observed['pids']} stood{called}, {_KINDS[held]}")

    def describe(self) -> str:
        """Return what the fault does, in words for people."""
        of = f"{self.of_node} of " if self.of_node else ""
        held = {"gil": "holding the GIL", "nothing": "in a call", "network": "in its next network call"}[self.place]
        return f"{of}{names(self.targets)} hang{'s' * (len(self.targets) == 1)}, {held}, {self.describe_duration()}"

    def expected_lost_time(self) -> float:
        """Return its duration in seconds: it does nothing meanwhile."""
        return self.duration or 0.0

    def _called(self, stood: Sequence[Stood]) -> Observation:
        """Return the network calls in which they stand, and whether one has Python's lock."""
        if not self.within:
            return {}
        return {"calls": ", ".join(dict.fromkeys(each.call for each in stood if each.call)),
                "holding": "gil" if any(each.with_gil for each in stood) else "nothing"}


class Hang(_Standing):
    """The main thread of a node's first process stands, and the process looks alive: it is there, its connections
    stand, and what another thread or process sends as a sign of life goes on, where it needs no GIL."""

    drawn = Drawn(270, {"for": DURATIONS, "holding": ("gil", "nothing")}, family="slow", simulated=False)

    kind: Literal["hang"] = "hang"


class HangProcess(_Standing, OfProcess):
    """The same of one of the processes that a node has started."""

    needs: ClassVar[frozenset[Ability]] = frozenset({"hang", "hang_inner"})
    kind: Literal["hang_process"] = "hang_process"

    @property
    def of_node(self) -> str:
        """Return the process that the scenario names."""
        return self.process

    def begin(self, hit: FaultContext, target: str) -> str:
        """Make that process stand."""
        return hit.having(InnerMainThreads).hang_inner(target, f"{hit.id}.{target}", self.process, self.place)
