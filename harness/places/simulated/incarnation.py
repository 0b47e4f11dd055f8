"""An incarnation that is a simulated process.

What lasts is in no undo log: nothing outlives the process that does it.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

from diloco_chaos.harness.places.base import ClusterError, NodeSpec
from diloco_chaos.harness.places.duty_cycle import shares
from diloco_chaos.harness.places.incarnation import Incarnation
from diloco_chaos.harness.record.undo_log import UndoLog
from diloco_chaos.harness.simulation.process import SimulatedProcess


class SimulatedIncarnation(Incarnation):
    """See the module."""

    def __init__(self, spec: NodeSpec, number: int, undo_log: UndoLog, process: SimulatedProcess) -> None:
        super().__init__(spec, number, undo_log, lambda: process.world.now)
        self.process = process
        self.oom = False
        self._cycle = 0
        self._throttled = False

    @property
    def pid(self) -> int:
        """A number that no other one has."""
        return self.process.pid

    def send(self, number: signal.Signals) -> None:
        """SIGKILL and SIGTERM; SIGTERM waits for a process that stands still."""
        if number == signal.SIGKILL:
            self.process.die()
        elif number == signal.SIGTERM:
            self.process.feed(self.process.exit, 0, True)

    def ended(self) -> int | None:
        """Its exit status."""
        return self.process.status

    def freeze(self) -> None:
        """SIGSTOP."""
        self.process.freeze()

    def thaw(self) -> None:
        """SIGCONT."""
        self.process.thaw()

    def throttle(self, share: float | None, spread: float, seed: int) -> None:
        """The duty cycle of real processes, in virtual time."""
        self._cycle += 1
        if self._throttled:
            self._throttled = False
            self._run(True)
        if share is not None and self.alive:
            self._throttled = True
            self._turn(self._cycle, shares(share, spread, seed))

    @property
    def throttled(self) -> bool:
        """Whether a duty cycle is on."""
        return self._throttled

    def stands_still(self) -> bool:
        """Whether it is stopped."""
        return self.process.frozen

    def reap(self, until: float) -> None:
        """Nothing outlives the run."""

    def wait(self) -> int:
        """Its end is there at once."""
        status = self.ended()
        if status is None:
            raise ClusterError(f"{self.name} does not end")
        self.gone(status, self._clock())
        return status

    def details(self) -> dict[str, Any]:
        """Why it was killed."""
        return {"oom": True} if self.oom else {}

    def limit_writes(self, size: int, restart_after: float) -> None:
        """What is written is cut off."""
        if self.alive and self.process.disk is not None:
            self.process.disk.limit = size
            self._limits = (size, size)
            self.expected_exit, self.restart_after = True, restart_after

    def unlimit_writes(self) -> None:
        """No limit any more."""
        if self.process.disk is not None:
            self.process.disk.limit = None
        if self._limits is not None:
            self._limits = None
            self.clear_expected_exit()

    def clear_expected_exit(self) -> None:
        """What might have ended it is over, if nothing else is about to."""
        self.expected_exit = self._kill_at is not None or self._limits is not None or self.ended() is not None

    def gone(self, status: int, now: float) -> None:
        """Limits are those of a process."""
        if self.process.disk is not None:
            self.process.disk.limit = None
        super().gone(status, now)

    def _turn(self, cycle: int, parts: Callable[[], tuple[float, float]]) -> None:
        """Stop for a while, run for a while, and so on."""
        if cycle != self._cycle or not self.alive:
            return
        still, running = parts()
        self._run(False)
        world = self.process.world
        world.after(still, self._run_if, cycle)
        world.after(still + running, self._turn, cycle, parts)

    def _run_if(self, cycle: int) -> None:
        if cycle == self._cycle:
            self._run(True)

    def _run(self, runs: bool) -> None:
        if self._paused:
            return
        if runs and not self.process.held:
            self.process.thaw()
        elif not runs:
            self.process.freeze()
