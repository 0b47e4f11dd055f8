"""Faults of one of the processes that a node has started: a worker of torchrun's agent, whose agent lives on.

In a scenario they are called as those of nodes are, with a process as their target: `kill: agent-1/rank-3`.
"""

from __future__ import annotations

import signal
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from diloco_chaos.faults.base import Fault, FaultContext, Observation
from diloco_chaos.faults.evidence import Effect, Evidence, Injection
from diloco_chaos.harness.base.units import Written, names
from diloco_chaos.harness.places.base import Ability
from diloco_chaos.harness.places.capabilities import Processes


class OfProcess(Fault):
    """The node's own process is not touched; what becomes of it is for the trainer."""

    needs: ClassVar[frozenset[Ability]] = frozenset({"signal_process"})
    sends: ClassVar[signal.Signals]

    process: Annotated[str, Written(r"^[a-z][a-z0-9-]*-[A-Za-z0-9_.]+$", "a process: write NAME-ID, like rank-3")] = (
        Field(max_length=80))
    """NAME-ID; NAME is what the scenario calls these processes."""

    def inject(self, hit: FaultContext) -> Observation:
        """Signal it at every target."""
        return self._signal(hit, self.sends)

    def verify(self, run: Evidence, on: Injection) -> Effect:
        """It was there, and the kernel took the signal."""
        if why := on.observed.get("why"):
            return Effect(False, str(why))
        return Effect(bool(on.observed.get("ok")), f"{self.sends.name} to pid {on.observed.get('pids')}")

    def describe(self) -> str:
        """Return what the fault does, in words for people."""
        return f"{self.kind.removesuffix('_process')} {self.process} of {names(self.targets)}"

    def _signal(self, hit: FaultContext, number: signal.Signals) -> Observation:
        sent = {target: hit.having(Processes).signal_process(target, self.process, number) for target in self.targets}
        missing = [target for target, pids in sent.items() if not pids]
        if missing:
            return {"ok": False, "why": f"{names(missing)} had no process {self.process}"}
        return {"ok": True, "pids": ", ".join(str(pid) for pids in sent.values() for pid in pids)}


class KillProcess(OfProcess):
    """SIGKILL."""

    reversible: ClassVar[bool] = False
    sends: ClassVar[signal.Signals] = signal.SIGKILL

    kind: Literal["kill_process"] = "kill_process"


class TerminateProcess(OfProcess):
    """SIGTERM."""

    reversible: ClassVar[bool] = False
    sends: ClassVar[signal.Signals] = signal.SIGTERM

    kind: Literal["terminate_process"] = "terminate_process"


class PauseProcess(OfProcess):
    """SIGSTOP, and SIGCONT at the end."""

    occupies: ClassVar[str] = "process"
    sends: ClassVar[signal.Signals] = signal.SIGSTOP

    kind: Literal["pause_process"] = "pause_process"

    def undo(self, hit: FaultContext) -> None:
        """Let it go on, if it is still there."""
        self._signal(hit, signal.SIGCONT)

    def describe(self) -> str:
        """Return what the fault does, with how long it lasts."""
        return f"{super().describe()} {self.describe_duration()}"
