"""Faults that are made of others: a plan's freezing takes them apart, so that a plan holds single faults only."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, TypeAdapter, ValidationError, model_validator

from diloco_chaos.faults.base import Fault
from diloco_chaos.faults.processes.process import TYPICAL_START_S
from diloco_chaos.faults.registry import FAULTS
from diloco_chaos.harness.base.errors import first
from diloco_chaos.harness.base.units import Part, Seconds, names, show_seconds
from diloco_chaos.harness.places.base import Ability

_MOST_PARTS = 200
_CHOSEN = {"targets", "at", "when", "after", "id", "kind"}
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
        if self._count() > _MOST_PARTS:
            raise ValueError(f"that is {self._count()} partitions; {_MOST_PARTS} are the most")
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


class Storm(Composite):
    """Failures as they come: a Poisson process with a mean time between failures, from a seed."""

    spreads_over: ClassVar[str] = "whole_domains"

    kind: Literal["storm"] = "storm"
    mtbf: Seconds = Field(20.0, gt=0)
    """Mean time between failures."""
    per: Literal["node", "cluster"] = "node"
    """Whether that is one target's, or that of all targets together."""
    spacing: Seconds = 0.5
    """Least time between two failures."""
    most_down: Annotated[int, Field(ge=1, le=1000)] | None = None
    """So many targets may be down at once; what would be one more does not happen. None: all but one."""
    whole_domains: Part = 0.0
    """The share of failures that take a whole failure domain of the target: one that has no node beside the targets."""
    of: tuple[dict[str, Any], ...] = Field(({"kill": {"restart_after": "2s"}},), min_length=1, strict=False)
    """What may happen, each as likely: kinds with their settings."""

    @model_validator(mode="after")
    def _known(self) -> Storm:
        if self.at is None:
            raise ValueError("a storm begins at a time: `at: 5s`")
        expected = (self.duration or 0) / self.mtbf * (len(self.targets) if self.per == "node" else 1)
        if expected > _MOST_PARTS:
            raise ValueError(f"that is a storm of about {expected:.0f} failures; {_MOST_PARTS} are the most")
        for number, choice in enumerate(self.of, 1):
            kind, settings = _only(choice)
            if len(choice) != 1:
                raise ValueError(f"of, entry {number}: one kind each, not {len(choice)}; write it like "
                                 f"`- kill: {{restart_after: 2s}}`")
            if kind not in FAULTS or issubclass(FAULTS[kind], Composite):
                raise ValueError(f"of, entry {number}: {kind!r} is no single fault; write it like "
                                 f"`- kill: {{restart_after: 2s}}`")
            if not isinstance(settings, Mapping):
                raise ValueError(f"of, entry {number}: the settings of {kind} are a mapping, like "
                                 f"`- {kind}: {{for: 2s}}`; the storm chooses when and whom")
            if chosen := sorted(_CHOSEN & settings.keys()):
                raise ValueError(f"of, entry {number}: the storm itself chooses {', '.join(chosen)}")
            try:
                _made({"kind": kind, "targets": [self.targets[0]], "at": "0s", **settings})
            except ValidationError as error:
                raise ValueError(f"of, entry {number}: {kind}: {first(error)}") from error
        return self

    def kinds(self) -> frozenset[str]:
        """Whatever may happen."""
        return frozenset(_only(choice)[0] for choice in self.of)

    def starts_beside(self) -> bool:
        """Where one of its choices does."""
        return any(_made({"kind": kind, "targets": [self.targets[0]], "at": "0s", **settings}).starts_beside()
                   for kind, settings in map(_only, self.of))

    def parts(self, name: str, chance: random.Random) -> list[PlannedPart]:
        """Draw the times of every target's failures, then leave out what comes too close or is one too many."""
        drawn = sorted((at, target) for target in self._sources() for at in self._times(chance))
        most = self.most_down or max(1, len(self.targets) - 1)
        down: dict[str, float] = {}
        parts: list[PlannedPart] = []
        last = -float("inf")
        for at, source in drawn:
            target = source if source else chance.choice(list(self.targets))
            kind, settings = _only(chance.choice(list(self.of)))
            hit = self._together(target, chance)
            gone = {target for target in self.targets if down.get(target, 0.0) > at}
            if gone & set(hit) or len(gone) + len(hit) > most or at - last < self.spacing:
                continue
            part = {"kind": kind, "targets": hit, "at": f"{round((self.at or 0) + at, 3)!r}s", **settings}
            fault = _made(part)
            outage = fault.expected_duration()
            down |= dict.fromkeys(hit, float("inf") if outage is None else
                                  at + outage + (TYPICAL_START_S if fault.stops_target else 0.0))
            last = at
            parts.append(part)
        return parts

    def describe(self) -> str:
        """Return what the fault does, in words for people."""
        per = "each" if self.per == "node" else "together"
        kinds = ", ".join(_only(choice)[0] for choice in self.of)
        whole = f"{self.whole_domains:.0%} of a whole domain, " if self.whole_domains else ""
        return (f"storm ({kinds}) over {names(self.targets)}, MTBF {show_seconds(self.mtbf)} {per}, {whole}"
                f"{self.describe_duration()}")

    @property
    def within(self) -> list[tuple[str, ...]]:
        """Return the members of every domain that has no node beside the targets."""
        return [members for members in self.domains.values() if set(members) <= set(self.targets)]

    def _together(self, target: str, chance: random.Random) -> list[str]:
        """Draw the targets that fail with this one: for the share asked for, those of a domain that it is in."""
        if not self.whole_domains:
            return [target]  # nothing is drawn: storms from before this setting are what they were
        whole = chance.random() < self.whole_domains
        around = [members for members in self.within if target in members]
        return list(chance.choice(around)) if whole and around else [target]

    def _sources(self) -> Sequence[str]:
        return self.targets if self.per == "node" else ("",)

    def _times(self, chance: random.Random) -> list[float]:
        times: list[float] = []
        now = chance.expovariate(1 / self.mtbf)
        while now < (self.duration or 0):
            times.append(round(now, 3))
            now += chance.expovariate(1 / self.mtbf)
        return times


def _only(choice: Mapping[str, Any]) -> tuple[str, Any]:
    """The one kind that a choice names, and its settings."""
    kind = next(iter(choice), "")
    return kind, choice.get(kind) or {}


def _made(part: PlannedPart) -> Fault:
    """Return the fault that a part is.

    Raises:
        ValidationError: it can't be.
    """
    fault: Fault = TypeAdapter(FAULTS[part["kind"]]).validate_python(part)
    return fault
