"""A node's process that is simulated. What lasts is in no undo log: nothing outlives the process that does it."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping
from resource import RLIM_INFINITY
from typing import Any

from diloco_chaos.harness.places.nodes.duty_cycle import shares
from diloco_chaos.harness.places.nodes.process import Process
from diloco_chaos.harness.simulation.process import SimulatedProcess


class VirtualProcess(Process):
    """See the module."""

    def __init__(self, simulated: SimulatedProcess) -> None:
        self.simulated = simulated
        self.oom = False
        """It was killed for want of memory."""
        self._cycle = 0
        self._throttled = self._paused = False

    @property
    def pid(self) -> int:
        """None of this machine's."""
        return 0

    @property
    def known_pid(self) -> int:
        """A number that no other one has."""
        return self.simulated.pid

    def send(self, number: signal.Signals) -> None:
        """SIGKILL and SIGTERM; SIGTERM waits for a process that stands still."""
        if number == signal.SIGKILL:
            self.simulated.die()
        elif number == signal.SIGTERM:
            self.simulated.feed(self.simulated.exit, 0, True)

    def ended(self) -> int | None:
        """Return its exit status; None while it is there."""
        return self.simulated.status

    def freeze(self) -> None:
        """SIGSTOP."""
        self._paused = True
        self.simulated.freeze()

    def thaw(self) -> None:
        """SIGCONT."""
        self._paused = False
        self.simulated.thaw()

    def throttle(self, share: float, spread: float, seed: int) -> None:
        """The duty cycle of real processes, in virtual time."""
        self._throttled = True
        self._turn(self._cycle, shares(share, spread, seed))

    def unthrottle(self) -> None:
        """What was to come of the cycle comes no more."""
        self._cycle += 1
        if self._throttled:
            self._throttled = False
            self._run(True)

    @property
    def throttled(self) -> bool:
        """Return whether a duty cycle is on."""
        return self._throttled

    def stands_still(self) -> bool:
        """Return whether it is stopped."""
        return self.simulated.frozen

    def file_limits(self, limits: tuple[int, int] | None) -> tuple[int, int]:
        """Return the limits of its disk, and set them where `limits` are given; as they were before. What is written
        beyond is cut off. One that has no disk writes no files."""
        disk = self.simulated.disk
        if disk is None:
            raise ProcessLookupError("it writes no files")
        before = RLIM_INFINITY if disk.limit is None else disk.limit
        if limits is not None:
            disk.limit = None if limits[0] == RLIM_INFINITY else limits[0]
        return before, before

    def over(self, expected: bool) -> None:
        """Limits are those of a process; nothing pauses one that is gone."""
        self._paused = False
        if self.simulated.disk is not None:
            self.simulated.disk.limit = None

    def reap(self, until: float) -> None:
        """Do nothing: nothing outlives the run."""

    def details(self) -> Mapping[str, Any]:
        """Return why it was killed, for the tape."""
        return {"oom": True} if self.oom else {}

    def whereabouts(self) -> Mapping[str, Any]:
        """Return its number."""
        return {"pid": self.known_pid}

    def _turn(self, cycle: int, parts: Callable[[], tuple[float, float]]) -> None:
        """Stop for a while, run for a while, and so on."""
        if cycle != self._cycle or self.ended() is not None:
            return
        still, running = parts()
        self._run(False)
        world = self.simulated.world
        world.after(still, self._run_if, cycle)
        world.after(still + running, self._turn, cycle, parts)

    def _run_if(self, cycle: int) -> None:
        if cycle == self._cycle:
            self._run(True)

    def _run(self, runs: bool) -> None:
        if self._paused:
            return
        if runs and not self.simulated.held:
            self.simulated.thaw()
        elif not runs:
            self.simulated.freeze()
