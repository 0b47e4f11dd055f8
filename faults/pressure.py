"""Pressure on the machine that nodes are on: others want its processors, its memory, its disk."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import ClassVar, Literal

from pydantic import Field, model_validator

from diloco_chaos.faults.base import Fault, FaultContext, Observation, Strain, unable
from diloco_chaos.faults.evidence import Effect, Evidence, Injection
from diloco_chaos.harness.base.units import Part, Size, names, show_bytes, show_seconds
from diloco_chaos.harness.places.base import Ability
from diloco_chaos.harness.places.capabilities import Pressure
from diloco_chaos.harness.places.pressure import Felt, Load
from diloco_chaos.harness.record.tape.events import Machine

_LEAST, _TIMES, _MORE = 0.01, 2.0, 0.1
"""A node felt it that waited a hundredth of the time, and twice the share of before, or a tenth more."""
_PAGES = 20
"""Fewer are read from disks at any time."""
_MEMORY = 0.05
"""Share of the time."""
_SYNC_S, _SLOWER = 0.02, 3.0


class _Pressing(Fault):
    """All nodes of that machine feel it; its targets are those that must show that they did."""

    needs: ClassVar[frozenset[Ability]] = frozenset({"press"})
    shown_as = "slow"

    def load(self) -> Load:
        """Return what is to keep the machine busy."""
        raise NotImplementedError

    def inject(self, hit: FaultContext) -> Observation:
        """Begin."""
        return unable([hit.having(Pressure).press_on(hit.id, self.load(), self.targets)])

    def undo(self, hit: FaultContext) -> None:
        """End it."""
        hit.having(Pressure).lift(hit.id)

    def observe_end(self, hit: FaultContext) -> Observation:
        """Return what the targets met while it lasted."""
        felt = {target: hit.having(Pressure).felt(hit.id, target) for target in self.targets}
        met = {target: each for target, each in felt.items() if each is not None}
        if not met:  # what `inject` observed says why
            return {}
        if wrong := unable({each.why for each in met.values()}):
            return wrong
        return {"ok": all(self.bit(each) for each in met.values()), "did": next(iter(met.values())).did,
                "met": "; ".join(f"{target}: {self.words(each)}" for target, each in met.items())}

    def bit(self, felt: Felt) -> bool:
        """Return whether a target felt it."""
        return False

    def words(self, felt: Felt) -> str:
        """Return what a target met."""
        return ""

    def wrong(self, on: Injection) -> str:
        """Return why there was no pressure; empty: there was."""
        return str(on.observed.get("why") or ("" if "met" in on.observed else "it never began"))

    def affected_nodes(self, learners: Sequence[str]) -> Sequence[str]:
        """Return all: the machine is theirs, too."""
        return list(dict.fromkeys([*self.targets, *learners]))


class CpuPressure(_Pressing):
    """Busy workers want the processors that the targets may run on."""

    strains: ClassVar[frozenset[Strain]] = frozenset({"processors"})

    kind: Literal["cpu_pressure"] = "cpu_pressure"
    workers: int | None = Field(None, ge=1)
    """None: one for each processor that the targets may run on."""
    nice: int = Field(0, ge=0, le=19)
    """Their priority, as nice(1) counts it. None comes before the harness, which has to end them."""

    def load(self) -> Load:
        """Return it."""
        return Load("cpu", self.workers or 0, self.nice)

    def bit(self, felt: Felt) -> bool:
        """It waited for a processor, and more than before."""
        during, before = felt.during.share, felt.before.share
        return during >= _LEAST and (during >= _TIMES * before or during >= before + _MORE)

    def words(self, felt: Felt) -> str:
        """Return its run delay."""
        before = f", {felt.before.share:.1%} before" if felt.before.seconds else ""
        return (f"waited {show_seconds(felt.during.waited)} for a processor (run delay), "
                f"{felt.during.share:.1%} of the time{before}")

    def verify(self, run: Evidence, on: Injection) -> Effect:
        """Every target waited for a processor, and more than before."""
        if why := self.wrong(on):
            return Effect(False, why)
        ok, met = bool(on.observed.get("ok")), str(on.observed["met"])
        return Effect(ok, met if ok else f"{met}: that is no more than before: write more `workers`, or a lower `nice`")

    def describe(self) -> str:
        """Return what the fault does, in words for people."""
        count = f"{self.workers} busy workers" if self.workers else "a busy worker on each processor"
        nice = f" at nice {self.nice}" if self.nice else ""
        return f"{count}{nice} beside {names(self.targets)} {self.describe_duration()}"


class MemoryPressure(_Pressing):
    """Memory of the machine is held, and touched again and again."""

    strains: ClassVar[frozenset[Strain]] = frozenset({"memory", "disks"})

    kind: Literal["memory_pressure"] = "memory_pressure"
    size: Size | None = Field(None, gt=0)
    """Bytes that are held."""
    share: Part | None = Field(None, gt=0)
    """Of the memory that can be had, in place of `size`."""

    @model_validator(mode="after")
    def _one_size(self) -> MemoryPressure:
        if (self.size is None) == (self.share is None):
            raise ValueError("say how much memory, in one way: `size: 2GB` or `share: 50%`")
        return self

    def load(self) -> Load:
        """Return it."""
        return Load("memory", 1, 0, int(self.size or 0), self.share or 0.0)

    def bit(self, felt: Felt) -> bool:
        """Pages of it had to be read from a disk, and more than before."""
        return felt.during.major_faults >= max(_PAGES, _TIMES * felt.before.major_faults)

    def words(self, felt: Felt) -> str:
        """Return its major faults."""
        return f"{felt.during.major_faults} pages read from disk (major faults), {felt.before.major_faults} before"

    def verify(self, run: Evidence, on: Injection) -> Effect:
        """Every target had pages read from a disk, or the kernel says that memory was waited for (PSI)."""
        if why := self.wrong(on):
            return Effect(False, why)
        met = str(on.observed["met"])
        held = show_bytes(float(str(on.observed.get("did", "")).removeprefix("held ") or 0))
        waited = max((sample.memory for sample in _samples(run, on.began, run.until(on))), default=0.0)
        words = f"{held} held; {met}; memory was waited for {waited:.0%} of the time (PSI)"
        ok = bool(on.observed.get("ok")) or waited >= _MEMORY
        why = ("there was enough for all: hold more, by `size` or `share`" if on.observed.get("did") else
               "it was over before all was held: let it last longer (`for`)")
        return Effect(ok, words if ok else f"{words}: {why}")

    def describe(self) -> str:
        """Return what the fault does, in words for people."""
        held = f"{self.share:.0%} of the free memory" if self.share else f"{show_bytes(self.size or 0)} of memory"
        return f"{held} held beside {names(self.targets)} {self.describe_duration()}"


class IoPressure(_Pressing):
    """Workers write files on the run's disk and sync each megabyte. The files have no name, and leave nothing."""

    strains: ClassVar[frozenset[Strain]] = frozenset({"disks"})

    kind: Literal["io_pressure"] = "io_pressure"
    workers: int = Field(4, ge=1, le=64)
    size: Size = Field(256_000_000, gt=0)
    """Bytes of their files, all together; a file that is full is written over."""

    def load(self) -> Load:
        """Return it."""
        return Load("io", self.workers, 0, int(self.size))

    def bit(self, felt: Felt) -> bool:
        """It is judged by a probe: see `verify`."""
        return True

    def verify(self, run: Evidence, on: Injection) -> Effect:
        """A few bytes of the harness' own took longer to be on that disk than before."""
        if why := self.wrong(on):
            return Effect(False, why)
        before = median([sample.sync for sample in _samples(run, 0.0, on.began)] or [0.0])
        during = max((sample.sync for sample in _samples(run, on.began, run.until(on))), default=0.0)
        words = (f"a probe's byte took up to {show_seconds(during)} to be on the run's disk, {show_seconds(before)} "
                 f"before")
        ok = during >= max(_SYNC_S, _SLOWER * before)
        return Effect(ok, words if ok else f"{words}: the disk bears that: write more `workers`")

    def describe(self) -> str:
        """Return what the fault does, in words for people."""
        return f"{self.workers} workers write and sync beside {names(self.targets)} {self.describe_duration()}"


def _samples(run: Evidence, start: float, end: float) -> list[Machine]:
    return [sample for sample in run.tape.of(Machine, node="harness") if start <= sample.t <= end]
