"""What a machine does to the containers that it runs: it takes memory, network or disk away, or is restarted."""

from __future__ import annotations

from typing import ClassVar, Literal

from faults.base import Fault, FaultContext, Observation, names
from faults.process import Ending
from faults.state import FailingWrites
from harness.cluster.base import Ability
from harness.units import show_seconds

_TYPICAL_RESTART_S = 1.0


class OutOfMemory(Ending):
    """The kernel kills the node for want of memory: its limit is set just above what it uses, and more is asked for."""

    needs: ClassVar[frozenset[Ability]] = frozenset({"exhaust_memory", "restart"})

    kind: Literal["out_of_memory"] = "out_of_memory"

    def inject(self, hit: FaultContext) -> Observation:
        """Take it away from every target."""
        for target in self.targets:
            hit.cluster.exhaust_memory(target, self.restart_after)
        return {}

    def describe(self) -> str:
        """What it does, for people."""
        return f"{names(self.targets)} out of memory{self.back()}"


class Disconnect(Fault):
    """Off the network: packets vanish, and nobody is told. Connections stand until somebody gives them up."""

    needs: ClassVar[frozenset[Ability]] = frozenset({"disconnect"})
    on_links: ClassVar[bool] = True

    kind: Literal["disconnect"] = "disconnect"

    def inject(self, hit: FaultContext) -> Observation:
        """Take every target off."""
        for target in self.targets:
            hit.cluster.disconnect(target, True)
        return {}

    def undo(self, hit: FaultContext) -> None:
        """Put them back."""
        for target in self.targets:
            hit.cluster.disconnect(target, False)

    def describe(self) -> str:
        """What it does, for people."""
        return f"{names(self.targets)} off the network {self.describe_duration()}"


class FullDisk(FailingWrites):
    """The disk that the state lies on is full: a real ENOSPC, in the middle of a write."""

    needs: ClassVar[frozenset[Ability]] = frozenset({"fill_disk", "restart", "state"})

    kind: Literal["full_disk"] = "full_disk"

    def inject(self, hit: FaultContext) -> Observation:
        """Fill it."""
        return {"filled_bytes": hit.cluster.fill_disk(self.targets[0], self.restart_after)}

    def undo(self, hit: FaultContext) -> None:
        """Take back what fills it."""
        for target in self.targets:
            hit.cluster.empty_disk(target)

    def describe(self) -> str:
        """What it does, for people."""
        return (f"the disk of {names(self.targets)} is full {self.describe_duration()}, "
                f"back after {show_seconds(self.restart_after)}")


class RestartLinks(Fault):
    """Toxiproxy is restarted: every connection breaks at once, and is made again."""

    needs: ClassVar[frozenset[Ability]] = frozenset({"restart_links"})
    reversible: ClassVar[bool] = False
    on_links: ClassVar[bool] = True
    target_role: ClassVar[str] = "syncer"

    kind: Literal["restart_links"] = "restart_links"

    def inject(self, hit: FaultContext) -> Observation:
        """Restart it, and wait until all links are there again."""
        return {"down_s": round(hit.cluster.restart_links(), 3)}

    def describe(self) -> str:
        """What it does, for people."""
        return "the links' server restarted: every connection breaks"

    def expected_duration(self) -> float | None:
        """About a second."""
        return _TYPICAL_RESTART_S


class RestartEngine(Fault):
    """The engine that all containers run on is restarted. Nothing survives that: the run ends, inconclusive, keeps what
    was recorded, and leaves nothing behind."""

    needs: ClassVar[frozenset[Ability]] = frozenset({"restart_engine"})
    reversible: ClassVar[bool] = False
    target_role: ClassVar[str] = "syncer"

    kind: Literal["restart_engine"] = "restart_engine"

    def inject(self, hit: FaultContext) -> Observation:
        """Have it restarted."""
        hit.cluster.restart_engine()
        return {}

    def describe(self) -> str:
        """What it does, for people."""
        return "the engine restarted, with everything that runs on it"
