"""What a machine does to the containers that it runs: it takes memory, network or disk away, or is restarted."""

from __future__ import annotations

import signal
from typing import Any, ClassVar, Literal

from pydantic import model_validator

from diloco_chaos.faults.base import DURATIONS, RETURNS, Drawn, Fault, FaultContext, Observation, Strain
from diloco_chaos.faults.evidence import (
    SILENT,
    Effect,
    Evidence,
    Injection,
    between_contributions,
    exits,
    status_words,
)
from diloco_chaos.faults.processes.process import Ending
from diloco_chaos.faults.state import FailingWrites
from diloco_chaos.harness.base.units import names, show_seconds
from diloco_chaos.harness.places.base import Ability
from diloco_chaos.harness.places.capabilities import Disks, Engine, LinkServer, MemoryLimits, Network
from diloco_chaos.harness.record.tape.events import End, Hello, Lost

_TYPICAL_RESTART_S = 1.0
_BACK_S = 5.0
"""A connection that a restart broke is made again within this time."""


class OutOfMemory(Ending):
    """The kernel kills the node for want of memory: its limit is set just above what it uses, and more is asked for."""

    needs: ClassVar[frozenset[Ability]] = frozenset({"exhaust_memory", "restart"})
    strains: ClassVar[frozenset[Strain]] = frozenset({"memory", "disks"})
    drawn = Drawn(220, {"restart_after": RETURNS}, at_failpoints=True, family="ends")

    kind: Literal["out_of_memory"] = "out_of_memory"

    def inject(self, hit: FaultContext) -> Observation:
        """Take it away from every target."""
        for target in self.targets:
            hit.having(MemoryLimits).exhaust_memory(target, self.restart_after)
        return {}

    def verify(self, run: Evidence, on: Injection) -> Effect:
        """Return whether every target ended by SIGKILL, and the engine says that it was for want of memory."""
        exited = exits(run, self.targets, on)
        missing = [target for target in self.targets if target not in exited]
        if missing:
            return Effect(False, f"{', '.join(missing)} did not end")
        words = ", ".join(status_words(event.status) for event in exited.values())
        if not all(event.oom for event in exited.values()):
            return Effect(False, f"exit status {words}, but not for want of memory")
        killed = all(event.status == -signal.SIGKILL for event in exited.values())
        return Effect(killed, f"exit status {words}, out of memory")

    def describe(self) -> str:
        """Return what the fault does, in words for people."""
        return f"{names(self.targets)} out of memory{self.back()}"


class Disconnect(Fault):
    """Off the network: packets vanish, and nobody is told. Connections stand until somebody gives them up."""

    needs: ClassVar[frozenset[Ability]] = frozenset({"disconnect"})
    on_links: ClassVar[bool] = True
    shown_as = "partitioned"
    drawn = Drawn(180, {"for": DURATIONS}, family="link")

    kind: Literal["disconnect"] = "disconnect"

    def inject(self, hit: FaultContext) -> Observation:
        """Take every target off."""
        for target in self.targets:
            hit.having(Network).disconnect(target, True)
        return {}

    def undo(self, hit: FaultContext) -> None:
        """Put them back."""
        for target in self.targets:
            hit.having(Network).disconnect(target, False)

    def verify(self, run: Evidence, on: Injection) -> Effect:
        """Judge it by how long nothing of a node that was off the network was merged."""
        silent = min(between_contributions(run, target, on.began, on.ended or run.end)
                     for target in self.affected_nodes(run.learners))
        return Effect(silent >= SILENT * (self.duration or 0), f"nothing came through for {show_seconds(silent)}")

    def describe(self) -> str:
        """Return what the fault does, in words for people."""
        return f"{names(self.targets)} off the network {self.describe_duration()}"


class FullDisk(FailingWrites):
    """The disk that the state lies on is full: a real ENOSPC, in the middle of a write."""

    needs: ClassVar[frozenset[Ability]] = frozenset({"fill_disk", "restart", "state"})

    drawn = Drawn(260, {"for": ("1s", "500ms"), "restart_after": ("1s", "2s")}, family="disk")

    kind: Literal["full_disk"] = "full_disk"

    @model_validator(mode="before")
    @classmethod
    def _back_when_there_is_room(cls, given: Any) -> Any:
        return {"restart_after": given["for"], **given} if isinstance(given, dict) and "for" in given else given

    @model_validator(mode="after")
    def _back_to_a_disk_with_room(self) -> FullDisk:
        if self.restart_after < (self.duration or 0.0):
            raise ValueError(f"restart_after {self.restart_after:g}s is shorter than for {self.duration:g}s: the node "
                             f"would come back to a full disk, and end again for good")
        return self

    def _failed(self, reason: str, status: str, on: Injection) -> Effect:
        if "No space left" not in reason:
            return Effect(False, f"a write failed for another reason: {reason}")
        return Effect(True, f"a write onto the full disk failed ({reason}), exit status {status}")

    def inject(self, hit: FaultContext) -> Observation:
        """Fill that of every target."""
        filled = [hit.having(Disks).fill_disk(target, self.restart_after) for target in self.targets]
        return {"filled_bytes": sum(filled)}

    def undo(self, hit: FaultContext) -> None:
        """Take back what fills it."""
        for target in self.targets:
            hit.having(Disks).empty_disk(target)

    def describe(self) -> str:
        """Return what the fault does, in words for people."""
        return (f"the disk of {names(self.targets)} is full {self.describe_duration()}, "
                f"back after {show_seconds(self.restart_after)}")


class RestartLinks(Fault):
    """Toxiproxy is restarted: every connection breaks at once, and is made again."""

    needs: ClassVar[frozenset[Ability]] = frozenset({"restart_links"})
    reversible: ClassVar[bool] = False
    on_links: ClassVar[bool] = True
    target_role = "syncer"
    drawn = Drawn(230, family="link")

    kind: Literal["restart_links"] = "restart_links"

    def inject(self, hit: FaultContext) -> Observation:
        """Restart it, and wait until all links are there again."""
        return {"down_s": round(hit.having(LinkServer).restart_links(), 3)}

    def verify(self, run: Evidence, on: Injection) -> Effect:
        """Every learner was lost, and came back."""
        within = [event for event in run.tape.of(Lost, Hello, node=run.recorder)
                  if on.began - 0.1 < event.t < on.began + _BACK_S]
        lost = {event.learner for event in within if isinstance(event, Lost)}
        back = {event.learner for event in within if isinstance(event, Hello)}
        missing = [name for name in run.learners if name not in lost & back]
        if missing:
            return Effect(False, f"{', '.join(missing)} did not lose its connection and come back")
        return Effect(True, f"links down for {show_seconds(float(on.observed.get('down_s', 0.0)))}; "
                            f"every connection made again")

    def describe(self) -> str:
        """Return what the fault does, in words for people."""
        return "the links' server restarted: every connection breaks"

    def expected_duration(self) -> float | None:
        """About a second."""
        return _TYPICAL_RESTART_S


class RestartEngine(Fault):
    """The engine that all containers run on is restarted. Nothing survives that: the run ends, inconclusive, keeps what
    was recorded, and leaves nothing behind."""

    needs: ClassVar[frozenset[Ability]] = frozenset({"restart_engine"})
    reversible: ClassVar[bool] = False
    strains: ClassVar[frozenset[Strain]] = frozenset({"processors"})
    target_role = "syncer"

    kind: Literal["restart_engine"] = "restart_engine"

    def inject(self, hit: FaultContext) -> Observation:
        """Have it restarted."""
        hit.having(Engine).restart_engine()
        return {}

    def verify(self, run: Evidence, on: Injection) -> Effect:
        """Nothing was recorded any more: the run ended there."""
        last = max((t for (node, _), t in run.tape.ends.items() if node != "harness"), default=on.began)
        ended = [event for event in run.tape.of(End, node="harness") if "engine" in str(event.message)]
        return Effect(bool(ended), f"the run broke off; last event {show_seconds(max(0.0, last - on.began))} after it")

    def describe(self) -> str:
        """Return what the fault does, in words for people."""
        return "the engine restarted, with everything that runs on it"
