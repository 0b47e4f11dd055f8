"""Faults that are made of others: a plan's freezing takes them apart, so that a plan holds single faults only."""

from __future__ import annotations

import random
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from diloco_chaos.faults.base import Fault
from diloco_chaos.faults.processes.process import TYPICAL_START_S
from diloco_chaos.faults.registry import FAULTS
from diloco_chaos.harness.base.units import Seconds, names, show_seconds
from diloco_chaos.harness.places.base import Ability

MOST_PARTS = 200
PlannedPart = dict[str, Any]
"""A fault as a plan's JSON has it."""


class Composite(Fault):
    """Has no `inject`: it is taken apart."""

    taken_apart: ClassVar[bool] = True

    def kinds(self) -> frozenset[str]:
        """Return the kinds of faults that it is made of."""
        raise NotImplementedError

    def requires(self) -> frozenset[Ability]:
        """Return what any of its parts needs."""
        return frozenset(ability for kind in self.kinds() for ability in FAULTS[kind].needs)

    def parts(self, name: str, chance: random.Random) -> list[PlannedPart]:
        """The single faults, the n-th of which is called `name.n`; all chance comes from `chance`."""
        raise NotImplementedError

    def _first(self, part: PlannedPart) -> PlannedPart:
        """A part that comes when the whole is to come."""
        document = self.model_dump(mode="json", by_alias=True, include={"at", "when", "after"}, exclude_none=True)
        return {"targets": list(self.targets)} | part | document

    def _chain(self, name: str, count: int, part: PlannedPart, wait: float) -> list[PlannedPart]:
        """`count` times the same, each so long after the end of the one before."""
        following = [{"targets": list(self.targets), **part,
                      "after": {"fault": f"{name}.{number}", "wait": f"{wait!r}s"}} for number in range(1, count)]
        return [self._first(part), *following]


class Flapping(Composite):
    """A link that goes down and up again, over and over."""

    on_links: ClassVar[bool] = True

    kind: Literal["flapping"] = "flapping"
    down: Seconds = Field(0.4, gt=0)
    up: Seconds = Field(0.8, gt=0)

    @model_validator(mode="after")
    def _fits(self) -> Flapping:
        if (self.duration or 0) < self.down:
            raise ValueError(f"`for` is shorter than one time down ({show_seconds(self.down)})")
        if self._count() > MOST_PARTS:
            raise ValueError(f"that is {self._count()} partitions; {MOST_PARTS} are the most")
        return self

    def kinds(self) -> frozenset[str]:
        """Partitions."""
        return frozenset({"partition"})

    def parts(self, name: str, chance: random.Random) -> list[PlannedPart]:
        """Partitions in a row."""
        return self._chain(name, self._count(), {"kind": "partition", "for": f"{self.down!r}s"}, self.up)

    def describe(self) -> str:
        """Return what the fault does, in words for people."""
        return (f"{names(self.targets)} flapping, {show_seconds(self.down)} down and {show_seconds(self.up)} up, "
                f"{self.describe_duration()}")

    def _count(self) -> int:
        return 1 + int(((self.duration or 0) - self.down) / (self.down + self.up))


class CrashLoop(Composite):
    """A node that is started again and again, and dies each time soon after."""

    reversible: ClassVar[bool] = False
    stops_target: ClassVar[bool] = True

    kind: Literal["crash_loop"] = "crash_loop"
    times: int = Field(4, ge=2, le=50)
    restart_after: Seconds = 0.5
    alive: Seconds = Field(0.8, gt=0)
    """From each start to the next kill."""

    def kinds(self) -> frozenset[str]:
        """Kills."""
        return frozenset({"kill"})

    def parts(self, name: str, chance: random.Random) -> list[PlannedPart]:
        """Kills in a row."""
        return self._chain(name, self.times, {"kind": "kill", "restart_after": f"{self.restart_after!r}s"}, self.alive)

    def describe(self) -> str:
        """Return what the fault does, in words for people."""
        return f"kill {names(self.targets)} {self.times} times in a row, {show_seconds(self.alive)} after each start"

    def expected_lost_time(self) -> float:
        """Return the time until the target stays up, in seconds."""
        return self.times * self.restart_after + (self.times - 1) * self.alive + TYPICAL_START_S

    def expected_duration(self) -> float | None:
        """Return the time until the last start, in seconds."""
        return self.times * self.restart_after + (self.times - 1) * self.alive
