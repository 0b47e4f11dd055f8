"""One incarnation of a node, wherever it runs: what is known of it, and how faults bring its end about.

Places differ in how a signal is sent and how an end is noticed; what a kill, a restart or a pause means does not.
"""

from __future__ import annotations

import resource
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import suppress

from diloco_chaos.harness.base.processes import Identity, identity
from diloco_chaos.harness.places.base import ClusterError, NodeSpec, NodeState
from diloco_chaos.harness.record.undo_log import UndoLog
from diloco_chaos.harness.record.undos import Lift, Undo

STOP_TIMEOUT_S = 2.0
Clock = Callable[[], float]
_POLL_S = 0.005


class Incarnation(ABC):
    """What is done to one that has ended is done to nobody."""

    def __init__(self, spec: NodeSpec, number: int, undo_log: UndoLog, clock: Clock = time.monotonic) -> None:
        """`clock`: seconds, as `time.monotonic` counts them."""
        self.spec, self.incarnation = spec, number
        self.expected_exit = False
        """A fault brings its end about: its death is no error."""
        self.restart_after: float | None = None
        """Seconds from its end to the start of the next incarnation; None: there is none."""
        self.restart_at: float | None = None
        self.status: int | None = None
        """Exit status, once it was seen to be gone; negative: the signal that ended it."""
        self._undo_log, self._clock = undo_log, clock
        self._owed: dict[str, int] = {}  # what was done to it -> the undo log's number of its undo
        self._kill_at: float | None = None
        self._paused = False
        self._limits: tuple[int, int] | None = None

    # -- what places differ in -----------------------------------------------------------------------------------------

    @property
    @abstractmethod
    def pid(self) -> int:
        """The node's process, as this machine knows it."""

    @abstractmethod
    def send(self, number: signal.Signals) -> None:
        """Signal it; nothing happens where it is gone."""

    @abstractmethod
    def ended(self) -> int | None:
        """Its exit status; None while it is there."""

    @abstractmethod
    def freeze(self) -> None:
        """Stop it where it is."""

    @abstractmethod
    def thaw(self) -> None:
        """Let it go on, also where it had stopped itself."""

    @abstractmethod
    def throttle(self, share: float | None, spread: float, seed: int) -> None:
        """Let it run only this share of the time; None: no more."""

    @property
    @abstractmethod
    def throttled(self) -> bool:
        """Whether it is held back now."""

    @abstractmethod
    def stands_still(self) -> bool:
        """Whether something keeps it from running."""

    @abstractmethod
    def reap(self, until: float) -> None:
        """The run is over: wait for its end until then, and kill it."""

    def details(self) -> dict[str, object]:
        """What else is known of its end, for the tape."""
        return {}

    # -- what is the same everywhere -----------------------------------------------------------------------------------

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
            return NodeState("paused" if self._paused else "running", self.incarnation, self.pid)
        return NodeState("finished" if self.status == 0 else "dead", self.incarnation, None)

    @property
    def next_at(self) -> float:
        """When there is something to be done to it that nothing announces: seconds of its clock, infinite for never."""
        return min((at for at in (self._kill_at, self.restart_at) if at is not None), default=float("inf"))

    def residue(self) -> list[str]:
        """What of any fault is still on it, in words; one whose end has been brought about is on its way."""
        if not self.alive or (self.expected_exit and self._kill_at is not None):
            return []
        return [f"{self.name} {words}" for words, there in (
            ("is throttled", self.throttled), ("is stopped", self.stands_still()),
            ("may write no large file", self._limits is not None)) if there]

    def look(self, now: float) -> int | None:
        """The exit status, the first time that it is seen; a SIGTERM that was ignored becomes a SIGKILL."""
        if not self.alive:
            return None
        if self._kill_at is not None and now >= self._kill_at:
            self._kill_at = None
            self.send(signal.SIGKILL)
        status = self.ended()
        if status is not None:
            self.gone(status, now)
        return status

    def gone(self, status: int, now: float) -> None:
        """It has ended: nothing is owed to it any more."""
        self.status, self._paused, self._limits = status, False, None
        self.throttle(None, 0.0, 0)
        for what in list(self._owed):
            self._paid(what)
        if self.expected_exit and self.restart_after is not None:
            self.restart_at = now + self.restart_after

    def end(self, number: signal.Signals, restart_after: float | None) -> None:
        """Bring its end about; SIGTERM is followed by SIGKILL after two seconds."""
        if self.alive:
            self.expected_exit, self.restart_after = True, restart_after
            self.send(number)
            if number == signal.SIGTERM:
                self._kill_at = self._clock() + STOP_TIMEOUT_S

    def wait(self) -> int:
        """Wait for the end that was brought about; the exit status.

        Raises:
            ClusterError: it is still there after two seconds.
        """
        until = time.monotonic() + STOP_TIMEOUT_S
        while (status := self.ended()) is None:
            if time.monotonic() > until:
                raise ClusterError(f"{self.name} does not end")
            time.sleep(_POLL_S)
        self.gone(status, time.monotonic())
        return status

    def pause(self) -> None:
        """Stop it where it is; one that stopped itself is taken over."""
        if self.alive and not self._paused:
            self.freeze()
            self._paused = True

    def resume(self) -> None:
        """Let it go on where it was paused."""
        if self._paused:
            self.thaw()
            self._paused = False

    def limit_writes(self, size: int, restart_after: float) -> None:
        """Set the soft limit RLIMIT_FSIZE from outside; it may die of it."""
        if self.alive and self._limits is None:
            try:
                soft, hard = self.file_limits(None)
            except ProcessLookupError:
                return  # it is gone, and was not seen to be yet
            self._owe("limit", Lift, {"process": self._identity(), "soft": soft, "hard": hard})
            self._limits = (soft, hard)
            self.expected_exit, self.restart_after = True, restart_after
            self.file_limits((size, hard))

    def unlimit_writes(self) -> None:
        """The limits from before."""
        if self._limits is not None:
            limits, self._limits = self._limits, None
            with suppress(ProcessLookupError):
                self.file_limits(limits)
            self.clear_expected_exit()
            self._paid("limit")

    def clear_expected_exit(self) -> None:
        """What might have ended it is over; where it did, or another fault is about to, its end is still to be seen."""
        self.expected_exit = (self._kill_at is not None or self._limits is not None or self.ended() is not None
                              or identity(self.pid) is None)

    def file_limits(self, limits: tuple[int, int] | None) -> tuple[int, int]:
        """RLIMIT_FSIZE of the process, soft and hard, set where `limits` are given; as it was before.

        Raises:
            ProcessLookupError: it is gone.
        """
        if limits is None:
            return resource.prlimit(self.pid, resource.RLIMIT_FSIZE)
        return resource.prlimit(self.pid, resource.RLIMIT_FSIZE, limits)

    def stop(self) -> None:
        """The run is over: let it go and ask it to end. Wait for it with `reap`."""
        self.restart_at = None
        self.throttle(None, 0.0, 0)
        if self.ended() is None:
            if self._paused:
                self.resume()
            self.send(signal.SIGCONT)
            self.send(signal.SIGTERM)

    def _identity(self) -> Identity:
        return identity(self.pid) or Identity(self.pid, 0)

    def _owe(self, what: str, undo: type[Undo], fields: Mapping[str, object]) -> None:
        self._owed[what] = self._undo_log.record(undo, **fields)

    def _paid(self, what: str) -> None:
        if what in self._owed:
            self._undo_log.complete(self._owed.pop(what))
