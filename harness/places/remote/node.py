"""An incarnation that an agent elsewhere has started, moved by what the agent is asked for."""

from __future__ import annotations

import signal
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any, NamedTuple

from diloco_chaos.harness.places.base import ClusterError, NodeSpec, NodeState
from diloco_chaos.harness.places.duty_cycle import QuotaCycle
from diloco_chaos.harness.places.incarnation import Incarnation
from diloco_chaos.harness.places.remote.clocks import Clock
from diloco_chaos.harness.places.remote.connection import AgentError, Connection, GoneError
from diloco_chaos.harness.record.undo_log import UndoLog

_HISTORY = 24
_LEAST_HISTORY_S, _LEAST = 1.5, 0.005
_LOST = -int(signal.SIGKILL)
_REASON_S = 5.0
"""Whoever waits for the host as long as that knows what it waits for, and is to tell it first."""


class Used(NamedTuple):
    """What had been used by a time on a host's clock."""

    at: float
    by_all: float
    """Seconds of processor, of all that is in it."""
    by_agent: float
    """And of the agent alone."""


class Host:
    """What one node's incarnations run in, one after the other: a pod, or a job, with an agent. What is asked of it is
    done in the order of asking."""

    def __init__(self, name: str, agent: Connection) -> None:
        """`name`: what the place calls it."""
        self.name, self.agent, self.clock = name, agent, Clock()
        self.lost = ""
        """Why it is gone, agent and all; empty: it is there, as far as is known."""
        self.leaving = False
        """It is about to be gone: no incarnation more starts in it."""
        self.heard = 0.0
        """When its agent answered last, by this machine's clock; 0: never."""
        self.told: dict[str, Any] = {}
        """What its agent told last of its machine, and of itself."""
        self.used: deque[Used] = deque(maxlen=_HISTORY)
        """Of late."""
        self.failure: BaseException | None = None
        """What of that which was asked of it could not be done."""
        self._hand = ThreadPoolExecutor(1, thread_name_prefix=name)

    def soon(self, act: Callable[[], None]) -> Future[None]:
        """Do this after all that was asked before, without waiting for it."""
        def done() -> None:
            if self.failure is not None:
                raise self.failure  # what is asked now needs what could not be done
            try:
                act()
            except BaseException as error:
                self.failure = error
                raise
        try:
            return self._hand.submit(done)
        except RuntimeError:  # it was closed: nothing more is done to it
            over: Future[None] = Future()
            over.set_result(None)
            return over

    def look(self, within: float) -> None:
        """Compare clocks, and have it tell what it sees.

        Raises:
            AgentError: it does not answer within so many seconds.
        """
        reading, told = self.agent.look(within)
        self.clock.add(reading)
        self.heard = reading.at
        self.told = told
        self.used.append(Used(float(told["at"]), float(told["used"]), float(told["own"])))

    def close(self) -> None:
        """Ask nothing more; who waits for an answer gets none."""
        self.lost = self.lost or "nothing more is asked of it"
        self._hand.shutdown(wait=False, cancel_futures=True)
        self.agent.close()


class RemoteNode(Incarnation):
    """See the module. Nothing that is done to it is in the undo log: it ends with its agent, and that with the run."""

    def __init__(self, spec: NodeSpec, number: int, undo_log: UndoLog, host: Host,
                 start: Callable[[RemoteNode], None],
                 set_processors: Callable[[float | None], None] = lambda _: None) -> None:
        """`start` has the agent start it; it is called at once, in the host's thread. `set_processors`: lets its host
        use no more than so many, None: as many as ever."""
        super().__init__(spec, number, undo_log)
        self._set_processors, self._limited = set_processors, False
        self._cycle: QuotaCycle | None = None
        self.host = host
        self.ahead: float | None = None
        """Seconds by which its machine's clock was taken to be ahead when it was started; its tape goes by that."""
        self._file_limits: tuple[int, int] | None = None
        self._started = host.soon(lambda: start(self))

    @property
    def process(self) -> str:
        """What its agent knows it by."""
        return f"{self.name}.{self.incarnation}"

    @property
    def agent(self) -> Connection:
        """Its host's."""
        return self.host.agent

    def wait_started(self, seconds: float) -> None:
        """Until its agent has started it.

        Raises:
            ClusterError: it could not be, or was not so soon.
        """
        try:
            self._started.result(seconds + _REASON_S)
        except TimeoutError as error:
            raise ClusterError(f"{self.name}: {self.host.name} has not started it within {seconds:g} s. Raise "
                               f"`start_within`") from error

    @property
    def pid(self) -> int:
        """None of this machine."""
        return 0

    def known(self) -> NodeState:
        """Its state; its process is none of this machine's."""
        known = super().known()
        return NodeState(known.state, known.incarnation, None)

    def send(self, number: signal.Signals) -> None:
        """By its agent, after all that was asked before."""
        self.host.soon(lambda: self.agent.soon("signal", name=self.process, number=int(number)))

    def ended(self) -> int | None:
        """As its agent says; where that is gone with all it ran in, so is this."""
        if self._started.done() and (error := self._started.exception()) is not None and not self.host.lost:
            raise error
        if (end := self.agent.exits.get(self.process)) is not None:
            return end.status
        return _LOST if self.host.lost else None

    def details(self) -> dict[str, Any]:
        """Whether the kernel killed something for want of memory, or all that it ran in is gone."""
        end = self.agent.exits.get(self.process)
        if end is None:
            known = self.spec.epoch and self.host.heard
            return {"lost": self.host.lost} | (
                {"heard": round(self.host.heard - self.spec.epoch, 6)} if known else {})
        return {"oom": True} if end.oom else {}

    def freeze(self) -> None:
        """SIGSTOP, to it and all that it has started."""
        self._signal_now(signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT."""
        self._signal_now(signal.SIGCONT)

    def _signal_now(self, number: signal.Signals) -> None:
        if not self.host.lost:
            with suppress(GoneError):
                self.agent.ask("signal", name=self.process, number=int(number))

    def throttle(self, share: float | None, spread: float, seed: int) -> None:
        """This share of the processors that it has been using until now, which a paced learner uses evenly."""
        if self._cycle is not None:
            self._cycle.end()
            self._cycle = None
        if share is not None and self.alive:
            node, own = self._usage()
            self._cycle = QuotaCycle(lambda drawn: self._limit(drawn * node + own), share, spread, seed)
        elif self._limited and self.alive:
            self._limit(None)

    @property
    def throttled(self) -> bool:
        """Whether a limit is on."""
        return self._limited

    def _limit(self, processors: float | None) -> None:
        self._limited = processors is not None
        self._set_processors(processors)

    def _usage(self) -> tuple[float, float]:
        """Processors that it has used over the last seconds, and those that its agent has, which goes on as ever."""
        used = tuple(self.host.used)
        self.host.used.clear()  # what was before tells nothing of what will be after
        if len(used) < 2 or (seconds := used[-1].at - used[0].at) < _LEAST_HISTORY_S:
            return 1.0, 0.0
        own = (used[-1].by_agent - used[0].by_agent) / seconds
        return max((used[-1].by_all - used[0].by_all) / seconds - own, _LEAST), own

    def stands_still(self) -> bool:
        """Whether it is stopped."""
        with suppress(GoneError):
            return bool(self.agent.ask("stat", name=self.process)["state"] == "T")
        return False

    def limit_writes(self, size: int, restart_after: float) -> None:
        """RLIMIT_FSIZE, set by its agent."""
        if self.alive and self._file_limits is None:
            with suppress(ProcessLookupError):  # it is gone, and was not seen to be yet
                self._file_limits = self.file_limits(None)
                self.expected_exit, self.restart_after = True, restart_after
                self.file_limits((size, self._file_limits[1]))

    def unlimit_writes(self) -> None:
        """The limits from before."""
        if self._file_limits is not None:
            limits, self._file_limits = self._file_limits, None
            with suppress(ProcessLookupError):
                self.file_limits(limits)
            self.clear_expected_exit()

    def file_limits(self, limits: tuple[int, int] | None) -> tuple[int, int]:
        """By its agent, which is of the same user."""
        try:
            soft, hard = self.agent.ask("limit", name=self.process, limits=limits)["before"]
        except GoneError as error:
            raise ProcessLookupError(self.process) from error
        return int(soft), int(hard)

    def clear_expected_exit(self) -> None:
        """What might have ended it is over; where it did, its end is still to be seen."""
        try:
            self.agent.ask("stat", name=self.process)
            gone = False
        except AgentError:
            gone = True
        self.expected_exit = self._kill_at is not None or self._file_limits is not None or gone

    def residue(self) -> list[str]:
        """And the limit of its files."""
        left = super().residue()
        return left + ([f"{self.name} may write no large file"] if self.alive and self._file_limits else [])

    def gone(self, status: int, now: float) -> None:
        """Nothing is on it any more."""
        self._file_limits = None
        super().gone(status, now)

    def stop(self) -> None:
        """Ask it to end, where there is somebody to ask."""
        if not self.host.lost and self.agent.connected:
            super().stop()

    def reap(self, until: float) -> None:
        """Wait for it; what it runs in is removed with all else."""
        while not self.host.lost and self.agent.connected and self.ended() is None and time.monotonic() < until:
            time.sleep(0.01)
