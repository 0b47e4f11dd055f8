"""One incarnation of a node, wherever it runs: what is known of it, and how faults bring its end about."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, TypeVar

from diloco_chaos.harness.base.processes import Identity, identity
from diloco_chaos.harness.places.base import STOP_TIMEOUT_S, ClusterError, NodeSpec, NodeState, Preemption
from diloco_chaos.harness.places.nodes.process import Process
from diloco_chaos.harness.record.undo_log import OpenUndos, UndoLog
from diloco_chaos.harness.record.undos import Lift

Clock = Callable[[], float]
P = TypeVar("P", bound=Process)
_POLL_S = 0.005


class Incarnation(Generic[P]):
    """One incarnation of a node; what is done to it after its end has no effect."""

    def __init__(self, spec: NodeSpec, number: int, process: P, undo_log: UndoLog,
                 clock: Clock = time.monotonic) -> None:
        """`clock`: seconds, as `time.monotonic` counts them."""
        self.spec, self.number, self.process = spec, number, process
        self.expected_exit = False
        """A fault brings its end about: its death is no error."""
        self.restart_after: float | None = None
        """Seconds from its end to the start of the next incarnation; None: there is none."""
        self.restart_at: float | None = None
        self.status: int | None = None
        """Exit status, once it was seen to be gone; negative: the signal that ended it."""
        self.forced_after: float | None = None
        """Seconds after which SIGKILL had to follow; None: it was not needed."""
        self.paused = False
        self._clock, self._undos = clock, OpenUndos(undo_log)
        self.successor_at: float | None = None
        """When the next incarnation starts, whether this one has ended by then or not; None: that waits for its end."""
        self._term_at: float | None = None
        self._beside: float | None = None
        self._kill_at: float | None = None
        self._grace = STOP_TIMEOUT_S
        self._limits: tuple[int, int] | None = None
        self.doomed: tuple[float, float | None] | None = None
        """When it is to be killed, and what `restart_after` is then."""

    @property
    def name(self) -> str:
        """The node's name."""
        return self.spec.name

    @property
    def alive(self) -> bool:
        """Return whether it was not seen to be gone."""
        return self.status is None

    def known(self) -> NodeState:
        """Return its state."""
        if self.alive:
            paused = self.paused or self.process.held
            return NodeState("paused" if paused else "running", self.number, self.process.known_pid)
        return NodeState("finished" if self.status == 0 else "dead", self.number, None)

    @property
    def next_at(self) -> float:
        """Return when there is something to be done to it that nothing announces: seconds of its clock, infinite for
        never."""
        doomed = None if self.doomed is None else self.doomed[0]
        ahead = self._term_at, self._kill_at, self.restart_at, self.successor_at, doomed
        return min((at for at in ahead if at is not None), default=float("inf"))

    @property
    def ending(self) -> bool:
        """Return whether it got a signal by which it is to end, and a stronger one is to follow."""
        return self._term_at is not None or self._kill_at is not None

    def residue(self) -> list[str]:
        """Return what of any fault is still on it, in words; one whose end has been brought about is on its way."""
        if not self.alive or (self.expected_exit and self.ending):
            return []
        return [f"{self.name} {words}" for words, present in (
            ("is throttled", self.process.throttled), ("is stopped", self.process.stands_still()),
            ("may write no large file", self._limits is not None)) if present]

    def look(self, now: float) -> int | None:
        """The exit status, the first time that it is seen; who was asked to end and did not in time is ended."""
        if not self.alive:
            return None
        if self._term_at is not None and now >= self._term_at:
            self._term_at = None
            self._ask(signal.SIGTERM, now)
            return None  # a successor that is due at once comes before its end is seen
        if self._kill_at is not None and now >= self._kill_at:
            self._kill_at, self.forced_after = None, self._grace
            self.process.send(signal.SIGKILL)
        if self.doomed is not None and now >= self.doomed[0]:
            self.end(signal.SIGKILL, self.doomed[1])
            self.doomed = None
        status = self.process.ended()
        if status is not None:
            self._gone(status, now)
        return status

    def end(self, number: signal.Signals, restart_after: float | None, grace: float = STOP_TIMEOUT_S) -> None:
        """Bring its end about; a signal by which it is asked to end is followed by SIGKILL after the grace period."""
        if self.alive:
            self.expect_exit(restart_after)
            self._term_at = self._beside = self.successor_at = None
            if number == signal.SIGKILL:
                self.process.send(number)
                return
            self._grace = grace
            self._ask(number, self._clock())

    def preempt(self, order: Preemption) -> None:
        """Bring its end about as a scheduler does that needs its place."""
        if not self.alive:
            return
        self.expect_exit(order.restart_after)
        self._grace, self._beside, self._kill_at, self.successor_at = order.grace, order.beside, None, None
        if order.notice is None:
            self._ask(order.number, self._clock())
        else:
            self._term_at = self._clock() + order.notice
            self.process.send(order.number)

    def stay_away(self) -> None:
        """Have no incarnation follow it that waits for its time."""
        self.restart_at = self.successor_at = None

    def _ask(self, number: signal.Signals, now: float) -> None:
        """Ask it to end; SIGKILL follows, and its successor may start meanwhile."""
        self.process.send(number)
        self._kill_at = now + self._grace
        if self._beside is not None:
            self.successor_at = now + self._beside

    def expect_exit(self, restart_after: float | None) -> None:
        """It is about to end by a fault; the next incarnation starts after so many seconds, None: none does."""
        self.expected_exit, self.restart_after = True, restart_after

    def wait(self) -> int:
        """Wait for the end that was brought about; the exit status.

        Raises:
            ClusterError: it is still there after two seconds.
        """
        until = time.monotonic() + STOP_TIMEOUT_S
        while (status := self.process.ended()) is None:
            if time.monotonic() > until:
                raise ClusterError(f"{self.name} does not end")
            time.sleep(_POLL_S)
        self._gone(status, self._clock())
        return status

    def pause(self) -> None:
        """Stop it where it is; one that stopped itself is taken over."""
        if self.alive and not self.paused:
            self.process.freeze()
            self.paused = True

    def resume(self) -> None:
        """Let it go on where it was paused."""
        if self.paused:
            self.process.thaw()
            self.paused = False

    def throttle(self, share: float | None, spread: float = 0.0, seed: int = 0) -> None:
        """Let it run only this share of the time; None: all of it again."""
        self.process.unthrottle()
        if share is not None and self.alive:
            self.process.throttle(share, spread, seed)

    def limit_writes(self, size: int, restart_after: float) -> None:
        """Set the soft limit RLIMIT_FSIZE from outside; it may die of it."""
        if self.alive and self._limits is None:
            try:
                soft, hard = self.process.file_limits(None)
            except ProcessLookupError:
                return  # it is gone, and was not seen to be yet
            if pid := self.process.pid:  # else it ends with what it runs in
                self._undos.record("limit", Lift, process=identity(pid) or Identity(pid, 0), soft=soft, hard=hard)
            self._limits = (soft, hard)
            self.expect_exit(restart_after)
            with suppress(ProcessLookupError):
                self.process.file_limits((size, hard))

    def unlimit_writes(self) -> None:
        """Set the limits from before again."""
        if self._limits is not None:
            limits, self._limits = self._limits, None
            with suppress(ProcessLookupError):
                self.process.file_limits(limits)
            self.clear_expected_exit()
            self._undos.complete("limit")

    def clear_expected_exit(self) -> None:
        """What might have ended it is over; where it did, or another fault is about to, its end is still to be seen."""
        self.expected_exit = self.ending or self._limits is not None or self.process.is_gone()

    def stop(self) -> None:
        """The run is over: let it go and ask it to end. Wait for it with `process.reap`."""
        self.stay_away()
        if not self.process.reachable:
            return
        self.process.unthrottle()
        if self.process.ended() is None:
            self.resume()
            self.process.send(signal.SIGCONT)
            self.process.send(signal.SIGTERM)

    def reap(self, until: float) -> None:
        """The run is over: wait for its end until then, and kill it; nothing is owed to it any more."""
        self.process.reap(until)
        self._undos.complete_all()

    def _gone(self, status: int, now: float) -> None:
        """It has ended: nothing is owed to it any more."""
        self.process.over(self.expected_exit)
        self.status, self.paused, self._limits, self.doomed = status, False, None, None
        self.process.unthrottle()
        self._undos.complete_all()
        if self.expected_exit and self.restart_after is not None:
            self.restart_at = now + self.restart_after
        elif self._term_at is not None and self._beside is not None:  # it ended within its notice
            self.successor_at = now + self._beside
        self._term_at = self._kill_at = None
