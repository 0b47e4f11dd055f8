"""One process of a local cluster, and all that can be done to it. What lasts is in the ledger before it is done."""

from __future__ import annotations

import resource
import signal
import subprocess
import time
from collections.abc import Mapping

from harness.cluster.base import ClusterError, NodeSpec, NodeState
from harness.cluster.duty import DutyCycle
from harness.ledger import Continue, Ledger, Lift
from harness.processes import Identity, identity, state

STOP_TIMEOUT_S = 2.0


class Process:
    """A node's incarnation. What is done to one that has ended is done to nobody."""

    def __init__(self, spec: NodeSpec, incarnation: int, popen: subprocess.Popen[bytes], ledger: Ledger) -> None:
        self.spec, self.incarnation, self.popen = spec, incarnation, popen
        self.doomed = False
        """A fault brings its end about: its death is no error."""
        self.restart_after: float | None = None
        """Seconds from its end to the start of the next incarnation; None: there is none."""
        self.restart_at: float | None = None
        self.status: int | None = None
        """Exit status, once it was seen to be gone."""
        self._ledger = ledger
        self._owed: dict[str, int] = {}  # what was done to it -> the ledger's number of its undo
        self._kill_at: float | None = None
        self._paused = False
        self._throttled: DutyCycle | None = None
        self._limits: tuple[int, int] | None = None

    @property
    def name(self) -> str:
        """The node's name."""
        return self.spec.name

    @property
    def alive(self) -> bool:
        """Whether it was not seen to be gone."""
        return self.status is None

    def known(self) -> NodeState:
        """Its state."""
        if self.alive:
            paused = self._paused or (self._throttled is not None and self._throttled.paused)
            return NodeState("paused" if paused else "running", self.incarnation, self.popen.pid)
        return NodeState("finished" if self.status == 0 else "dead", self.incarnation, None)

    def residue(self) -> list[str]:
        """What of any fault is still on it, in words."""
        if not self.alive:
            return []
        return [f"{self.name} {words}" for words, there in (
            ("is throttled", self._throttled is not None), ("is stopped", state(self.popen.pid) == "T"),
            ("may write no large file", self._limits is not None)) if there]

    def look(self, now: float) -> int | None:
        """The exit status, the first time that it is seen; a SIGTERM that was ignored becomes a SIGKILL."""
        if not self.alive:
            return None
        if self._kill_at is not None and now >= self._kill_at:
            self._kill_at = None
            self.popen.kill()
        status = self.popen.poll()
        if status is not None:
            self.gone(status, now)
        return status

    def gone(self, status: int, now: float) -> None:
        """It has ended: nothing is owed to it any more."""
        self.status, self._paused, self._limits = status, False, None
        self._end_throttle()
        for what in list(self._owed):
            self._paid(what)
        if self.doomed and self.restart_after is not None:
            self.restart_at = now + self.restart_after

    def end(self, number: signal.Signals, restart_after: float | None) -> None:
        """Bring its end about; SIGTERM is followed by SIGKILL after two seconds."""
        if self.alive:
            self.doomed, self.restart_after = True, restart_after
            self.popen.send_signal(number)
            if number == signal.SIGTERM:
                self._kill_at = time.monotonic() + STOP_TIMEOUT_S

    def wait(self) -> int:
        """Wait for the end that was brought about; the exit status.

        Raises:
            ClusterError: it is still there after two seconds.
        """
        try:
            status = self.popen.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired as error:
            raise ClusterError(f"{self.name} does not end") from error
        self.gone(status, time.monotonic())
        return status

    def pause(self) -> None:
        """SIGSTOP."""
        if self.alive and not self._paused:
            self._owe("pause", Continue, {"process": self._identity()})
            self.popen.send_signal(signal.SIGSTOP)
            self._paused = True

    def resume(self, die_within: float | None = None) -> None:
        """SIGCONT where it was paused; with `die_within` it is killed unless it ends by itself."""
        if self._paused:
            self.popen.send_signal(signal.SIGCONT)
            self._paused = False
            self._paid("pause")
            if die_within is not None:
                self._kill_at = time.monotonic() + die_within

    def throttle(self, share: float | None, spread: float, seed: int) -> None:
        """SIGSTOP and SIGCONT in turn; None: no more."""
        self._end_throttle()
        if share is not None and self.alive:
            self._owe("throttle", Continue, {"process": self._identity()})
            self._throttled = DutyCycle(self.popen, share, spread, seed)

    def limit_writes(self, size: int, restart_after: float) -> None:
        """Set the soft limit RLIMIT_FSIZE from outside; it may die of it."""
        if self.alive and self._limits is None:
            soft, hard = resource.prlimit(self.popen.pid, resource.RLIMIT_FSIZE)
            self._owe("limit", Lift, {"process": self._identity(), "soft": soft, "hard": hard})
            self._limits = (soft, hard)
            self.doomed, self.restart_after = True, restart_after
            resource.prlimit(self.popen.pid, resource.RLIMIT_FSIZE, (size, hard))

    def unlimit_writes(self) -> None:
        """The limits from before."""
        if self._limits is not None:
            resource.prlimit(self.popen.pid, resource.RLIMIT_FSIZE, self._limits)
            self.doomed, self._limits = False, None
            self._paid("limit")

    def stop(self) -> None:
        """The run is over: let it go and ask it to end. Wait for it with `reap`."""
        self.restart_at = None
        self._end_throttle()
        if self.popen.poll() is None:
            self.popen.send_signal(signal.SIGCONT)
            self.popen.terminate()

    def reap(self, until: float) -> None:
        """Wait for its end until then, and kill it."""
        try:
            self.popen.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.popen.kill()
            self.popen.wait()
        for what in list(self._owed):
            self._paid(what)

    def _end_throttle(self) -> None:
        if self._throttled is not None:
            self._throttled.end()
            self._throttled = None
            self._paid("throttle")

    def _identity(self) -> Identity:
        return identity(self.popen.pid) or Identity(self.popen.pid, 0)

    def _owe(self, what: str, undo: type[Continue | Lift], fields: Mapping[str, object]) -> None:
        self._owed[what] = self._ledger.owe(undo, **fields)

    def _paid(self, what: str) -> None:
        if what in self._owed:
            self._ledger.done(self._owed.pop(what))
