"""Faults of one of the processes that a node has started: a worker of torchrun's agent, whose agent lives on.

In a scenario they are called as those of nodes are, with a process as their target: `kill: agent-1/rank-3`.
"""

from __future__ import annotations

from signal import Signals
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from diloco_chaos.faults.base import AskedBy, Fault, FaultContext, Observation
from diloco_chaos.faults.evidence import Effect, Evidence, Injection
from diloco_chaos.harness.base.units import Written, names
from diloco_chaos.harness.places.base import Ability
from diloco_chaos.harness.places.capabilities import InnerProcesses


class OfProcess(Fault):
    """The node's own process is not touched; what becomes of it is for the trainer."""

    needs: ClassVar[frozenset[Ability]] = frozenset({"signal_inner"})

    process: Annotated[str, Written(r"^[a-z][a-z0-9-]*-[A-Za-z0-9_.]+$", "a process: write NAME-ID, like rank-3")] = (
        Field(max_length=80))
    """NAME-ID; NAME is what the scenario calls these processes."""

    @property
    def ends_as(self) -> tuple[int, ...]:
        """Return the exit statuses that tell of it: of the process itself, and of a node that passes that on; none
        where it ends nothing."""
        return ()

    def describe(self) -> str:
        """Return what the fault does, in words for people."""
        return f"{self.kind.removesuffix('_process')} {self.process} of {names(self.targets)}"


class SignalledProcess(OfProcess):
    """It gets a signal."""

    @property
    def sends(self) -> Signals:
        """Return the signal that it gets."""
        raise NotImplementedError

    @property
    def ends_as(self) -> tuple[int, ...]:
        """Return the statuses of who is ended by the signal."""
        return -self.sends, 128 + self.sends

    def inject(self, hit: FaultContext) -> Observation:
        """Signal it at every target."""
        return self._signal(hit, self.sends)

    def verify(self, run: Evidence, on: Injection) -> Effect:
        """It was there, and the kernel took the signal."""
        if why := on.observed.get("why"):
            return Effect(False, str(why))
        return Effect(bool(on.observed.get("ok")), f"{self.sends.name} to pid {on.observed.get('pids')}")

    def _signal(self, hit: FaultContext, number: Signals) -> Observation:
        having = hit.having(InnerProcesses)
        sent = {target: having.signal_process(target, self.process, number) for target in self.targets}
        missing = [target for target, pids in sent.items() if not pids]
        if missing:
            return {"ok": False, "why": f"{names(missing)} had no process {self.process}"}
        return {"ok": True, "pids": ", ".join(str(pid) for pids in sent.values() for pid in pids)}


class KillProcess(SignalledProcess):
    """SIGKILL."""

    reversible: ClassVar[bool] = False

    kind: Literal["kill_process"] = "kill_process"

    @property
    def sends(self) -> Signals:
        """Return SIGKILL."""
        return Signals.SIGKILL


class TerminateProcess(SignalledProcess):
    """SIGTERM, or another signal that asks it to end; nothing follows."""

    reversible: ClassVar[bool] = False

    kind: Literal["terminate_process"] = "terminate_process"
    signal: AskedBy = "TERM"
    """How it is asked."""

    @model_serializer(mode="wrap")
    def _without_default(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Return the document without what older frozen plans lack."""
        document: dict[str, Any] = serialize(self)
        return {key: value for key, value in document.items() if (key, value) != ("signal", "TERM")}

    @property
    def sends(self) -> Signals:
        """Return the signal that the scenario names."""
        return Signals[f"SIG{self.signal}"]

    def describe(self) -> str:
        """Return what the fault does, with the signal where that is another one than usual."""
        return super().describe() + ("" if self.signal == "TERM" else f" by SIG{self.signal}")


class PauseProcess(SignalledProcess):
    """SIGSTOP, and SIGCONT at the end."""

    occupies: ClassVar[str] = "process"

    kind: Literal["pause_process"] = "pause_process"

    @property
    def sends(self) -> Signals:
        """Return SIGSTOP."""
        return Signals.SIGSTOP

    def undo(self, hit: FaultContext) -> None:
        """Let it go on, if it is still there."""
        self._signal(hit, Signals.SIGCONT)

    def describe(self) -> str:
        """Return what the fault does, with how long it lasts."""
        return f"{super().describe()} {self.describe_duration()}"
