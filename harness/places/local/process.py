"""An incarnation that is a process of this machine, moved by signals.

What lasts is in the undo log before it is done.
"""

from __future__ import annotations

import signal
import subprocess
import time

from diloco_chaos.harness.base.processes import state
from diloco_chaos.harness.places.base import NodeSpec, NodeState
from diloco_chaos.harness.places.duty_cycle import DutyCycle, Signalled
from diloco_chaos.harness.places.incarnation import Incarnation
from diloco_chaos.harness.record.undo_log import UndoLog
from diloco_chaos.harness.record.undos import Continue


class Process(Incarnation):
    """See the module."""

    def __init__(self, spec: NodeSpec, number: int, popen: subprocess.Popen[bytes], undo_log: UndoLog) -> None:
        super().__init__(spec, number, undo_log)
        self.popen = popen
        self._cycle: DutyCycle | None = None

    @property
    def pid(self) -> int:
        """The process itself."""
        return self.popen.pid

    @property
    def _signalled(self) -> Signalled:
        """Who gets the signals of a duty cycle."""
        return self.popen

    def send(self, number: signal.Signals) -> None:
        """A signal; `Popen` sends none to a process that was waited for."""
        self.popen.send_signal(number)

    def ended(self) -> int | None:
        """As waitpid(2) says."""
        return self.popen.poll()

    def freeze(self) -> None:
        """SIGSTOP."""
        self._owe("pause", Continue, {"process": self._identity()})
        self.send(signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT."""
        self.send(signal.SIGCONT)
        self._paid("pause")

    def throttle(self, share: float | None, spread: float, seed: int) -> None:
        """SIGSTOP and SIGCONT in turn."""
        if self._cycle is not None:
            self._cycle.end()
            self._cycle = None
            self._paid("throttle")
        if share is not None and self.alive:
            self._owe("throttle", Continue, {"process": self._identity()})
            self._cycle = DutyCycle(self._signalled, share, spread, seed)

    @property
    def throttled(self) -> bool:
        """Whether a duty cycle is on."""
        return self._cycle is not None

    def stands_still(self) -> bool:
        """Whether it is stopped."""
        return state(self.pid) == "T"

    def known(self) -> NodeState:
        """Its state; a duty cycle pauses it, too."""
        known = super().known()
        paused = known.state == "running" and self._cycle is not None and self._cycle.paused
        return NodeState("paused", known.incarnation, known.pid) if paused else known

    def reap(self, until: float) -> None:
        """Wait for it, and kill it."""
        try:
            self.popen.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.popen.kill()
            self.popen.wait()
        for what in list(self._owed):
            self._paid(what)
