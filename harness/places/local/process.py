"""A process of this machine, moved by signals. What lasts is in the undo log before it is done.

One that is somebody's command is never alone: a fault means all that it has started, too.
"""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from diloco_chaos.harness.base.processes import Identity, identity, state
from diloco_chaos.harness.places.local.family import Family
from diloco_chaos.harness.places.nodes.duty_cycle import DutyCycle
from diloco_chaos.harness.places.nodes.process import Process
from diloco_chaos.harness.record.undo_log import OpenUndos, UndoLog
from diloco_chaos.harness.record.undos import Continue

if TYPE_CHECKING:
    from diloco_chaos.harness.places.local.fork_client import ForkedProcess

_TO_ALL = (signal.SIGKILL, signal.SIGSTOP, signal.SIGCONT)


class LocalProcess(Process):
    """See the module."""

    def __init__(self, popen: subprocess.Popen[bytes] | ForkedProcess, undo_log: UndoLog,
                 family: Family | None = None) -> None:
        """`family`: it and all that it has started; None: it is alone."""
        self.popen, self.family = popen, family
        self._undos = OpenUndos(undo_log)
        self._cycle: DutyCycle | None = None
        self._leaves = False
        self._left: list[str] | None = None

    @property
    def pid(self) -> int:
        """The process itself."""
        return self.popen.pid

    def send(self, number: signal.Signals) -> None:
        """What asks to end goes to the first process, which tells its own, as under any scheduler; what ends, stops and
        continues to all of them. `Popen` sends none to a process that was waited for."""
        if self.family is None or number not in _TO_ALL or self.popen.poll() is not None:
            self.popen.send_signal(number)
        else:
            self.family.send_signal(number)

    def all_of_it(self) -> list[Identity]:
        """Return it and all that it has started, itself first."""
        own = identity(self.pid)
        others = self.family.processes() if self.family is not None else []
        return [*filter(None, [own]), *(process for process in others if process != own)]

    def kill_first(self) -> None:
        """SIGKILL to the first process alone: what it has started outlives it."""
        self._leaves = True
        self.popen.send_signal(signal.SIGKILL)

    def ended(self) -> int | None:
        """Return its exit status, as waitpid(2) says it; None while it is there."""
        return self.popen.poll()

    def is_gone(self) -> bool:
        """It may be a zombie already."""
        return self.ended() is not None or identity(self.pid) is None

    def freeze(self) -> None:
        """SIGSTOP."""
        self._undos.record("pause", Continue, process=self._identity())
        self.send(signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT."""
        self.send(signal.SIGCONT)
        self._undos.complete("pause")

    def throttle(self, share: float, spread: float, seed: int) -> None:
        """SIGSTOP and SIGCONT in turn."""
        self._undos.record("throttle", Continue, process=self._identity())
        self._cycle = DutyCycle(self.family or self.popen, share, spread, seed)

    def unthrottle(self) -> None:
        """End the duty cycle."""
        if self._cycle is not None:
            self._cycle.end()
            self._cycle = None
            self._undos.complete("throttle")

    @property
    def throttled(self) -> bool:
        """Return whether a duty cycle is on."""
        return self._cycle is not None

    @property
    def held(self) -> bool:
        """Return whether the duty cycle has stopped it."""
        return self._cycle is not None and self._cycle.paused

    def stands_still(self) -> bool:
        """Return whether it is stopped."""
        return state(self.pid) == "T"

    def over(self, expected: bool) -> None:
        """What a command has left behind is told, and ends with it, unless it is to live on; nothing is owed to it any
        more. A fault's SIGKILL means all of them, so none is left behind."""
        if self.family is not None and not self._leaves:
            if not (expected and self.ended() == -signal.SIGKILL):
                self._left = self.family.left_behind()
            self.family.sweep()
        self._leaves = False
        self._undos.complete("pause")

    def details(self) -> Mapping[str, Any]:
        """Return what it has left behind."""
        return {"left": self._left}

    def reap(self, until: float) -> None:
        """Wait for it, and kill it."""
        try:
            self.popen.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.popen.kill()
            self.popen.wait()
        if self.family is not None:
            self.family.sweep(run_is_over=True)
        self._undos.complete("pause")

    def whereabouts(self) -> Mapping[str, Any]:
        """Return its pid."""
        return {"pid": self.popen.pid}

    def _identity(self) -> Identity:
        return identity(self.pid) or Identity(self.pid, 0)
