"""A node's process that an agent elsewhere has started, moved by what the agent is asked for.

Nothing that is done to it is in the undo log: it ends with its agent, and that with the run.
"""

from __future__ import annotations

import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from diloco_chaos.harness.places.base import ClusterError
from diloco_chaos.harness.places.nodes.duty_cycle import QuotaCycle
from diloco_chaos.harness.places.nodes.process import Process
from diloco_chaos.harness.places.remote.connection import AgentConnection, AgentError, GoneError
from diloco_chaos.harness.places.remote.hosts import Host

_LEAST_HISTORY_S, _LEAST = 1.5, 0.005
_LOST = -int(signal.SIGKILL)
_REASON_S = 5.0
"""Whoever waits for the host as long as that knows what it waits for, and is to tell it first."""


class Hand(ABC):
    """A place's way to signal a process on a host, and to hold it back."""

    @abstractmethod
    def send(self, number: signal.Signals) -> None:
        """Signal it after all that was asked of the host before, without waiting for it."""

    @abstractmethod
    def send_now(self, number: signal.Signals) -> None:
        """Signal it at once; nothing happens where it is gone."""

    @abstractmethod
    def throttle(self, share: float, spread: float, seed: int) -> None:
        """Let it run only this share of the time."""

    @abstractmethod
    def unthrottle(self) -> None:
        """Let it run all the time again; harmless where nothing holds it back."""

    @property
    @abstractmethod
    def throttled(self) -> bool:
        """Return whether it is held back."""

    @property
    def stops(self) -> bool:
        """Return whether what holds it back stops it now and then."""
        return False

    @property
    def stopped(self) -> bool:
        """Return whether it is stopped by that at the moment."""
        return False

    def status(self, reported: int) -> int:
        """Return this machine's exit status for the one that an agent reported."""
        return reported


class RemoteProcess(Process):
    """See the module."""

    def __init__(self, name: str, host: Host, hand: Hand, start: Callable[[RemoteProcess], None],
                 epoch: float = 0.0) -> None:
        """`name`: NODE.NUMBER, what its agent knows it by. `start` has the agent start it; it is called at once, in the
        host's thread. `epoch`: the run's beginning on the harness' clock, 0: it does not count from there."""
        self.name, self.host, self.hand = name, host, hand
        self.ahead: float | None = None
        """Seconds by which its machine's clock was taken to be ahead when it was started; its tape goes by that."""
        self._epoch = epoch
        self._started = host.soon(lambda: start(self))

    @property
    def agent(self) -> AgentConnection:
        """Return its host's agent."""
        return self.host.agent

    def wait_started(self, seconds: float) -> None:
        """Wait until its agent has started it.

        Raises:
            ClusterError: it could not be, or was not so soon.
        """
        try:
            self._started.result(seconds + _REASON_S)
        except TimeoutError as error:
            raise ClusterError(f"{self.name.rpartition('.')[0]}: {self.host.name} has not started it within "
                               f"{seconds:g} s. Raise `start_within`") from error

    @property
    def pid(self) -> int:
        """None of this machine's."""
        return 0

    def send(self, number: signal.Signals) -> None:
        """Signal it as its place does."""
        self.hand.send(number)

    def ended(self) -> int | None:
        """Return its exit status as its agent reports it, None while it is there; where the agent is gone with all it
        ran in, so is this."""
        if self._started.done() and (error := self._started.exception()) is not None and not self.host.lost:
            raise error
        if (end := self.agent.exits.get(self.name)) is not None:
            return self.hand.status(end.status)
        return _LOST if self.host.lost else None

    def is_gone(self) -> bool:
        """The agent may not have reported yet."""
        try:
            self.agent.ask("stat", name=self.name)
        except AgentError:
            return True
        return False

    def details(self) -> Mapping[str, Any]:
        """Return whether the kernel killed something for want of memory, or all that it ran in is gone, for the
        tape."""
        end = self.agent.exits.get(self.name)
        if end is not None:
            return {"oom": True} if end.oom else {}
        heard = self._epoch and self.host.heard
        return {"lost": self.host.lost} | ({"heard": round(self.host.heard - self._epoch, 6)} if heard else {})

    def whereabouts(self) -> Mapping[str, Any]:
        """Return the name of what it runs in."""
        return {"host": self.host.name}

    def freeze(self) -> None:
        """SIGSTOP, to it and all that it has started."""
        self.hand.send_now(signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT."""
        self.hand.send_now(signal.SIGCONT)

    def throttle(self, share: float, spread: float, seed: int) -> None:
        """Throttle it as its place does."""
        self.hand.throttle(share, spread, seed)

    def unthrottle(self) -> None:
        """Let it run all of the time again."""
        self.hand.unthrottle()

    @property
    def throttled(self) -> bool:
        """Return whether it is held back."""
        return self.hand.throttled

    @property
    def held(self) -> bool:
        """Return whether what holds it back stops it at the moment."""
        return self.hand.stopped

    def stands_still(self) -> bool:
        """Return whether it is stopped by more than what holds it back."""
        if self.hand.stops:
            return False
        with suppress(GoneError):
            return bool(self.agent.ask("stat", name=self.name)["state"] == "T")
        return False

    def file_limits(self, limits: tuple[int, int] | None) -> tuple[int, int]:
        """Return its limits, and set them where `limits` are given, by its agent, which is of the same user; as they
        were before."""
        try:
            soft, hard = self.agent.ask("limit", name=self.name, limits=limits)["before"]
        except GoneError as error:
            raise ProcessLookupError(self.name) from error
        return int(soft), int(hard)

    @property
    def reachable(self) -> bool:
        """Return whether its agent can be asked."""
        return not self.host.lost and self.agent.connected

    def reap(self, until: float) -> None:
        """Wait for it; what it runs in is removed with all else."""
        with suppress(ClusterError):  # one that could never be started has nothing to be waited for
            while self.reachable and self.ended() is None and time.monotonic() < until:
                time.sleep(0.01)


class QuotaHand(Hand):
    """Signals through the agent, and holds back by letting the host use fewer processors."""

    def __init__(self, process: str, host: Host, set_processors: Callable[[float | None], None]) -> None:
        """`process`: NODE.NUMBER. `set_processors`: lets its host use no more than so many, None: as many as ever."""
        self._process, self._host, self._set = process, host, set_processors
        self._limited = False
        self._cycle: QuotaCycle | None = None

    def send(self, number: signal.Signals) -> None:
        """Signal it by its agent."""
        self._host.soon(lambda: self._host.agent.soon("signal", name=self._process, number=int(number)))

    def send_now(self, number: signal.Signals) -> None:
        """Signal it by its agent."""
        if not self._host.lost:
            with suppress(GoneError):
                self._host.agent.ask("signal", name=self._process, number=int(number))

    def throttle(self, share: float, spread: float, seed: int) -> None:
        """This share of the processors that it has been using until now, which a paced learner uses evenly."""
        node, own = self._usage()
        self._cycle = QuotaCycle(lambda drawn: self._limit(drawn * node + own), share, spread, seed)

    def unthrottle(self) -> None:
        """Give its host as many processors as ever. What it runs in stays, where it has ended itself: so that comes
        before what starts there."""
        if self._cycle is not None:
            self._cycle.end()
            self._cycle = None
        if self._limited and not self._host.lost:
            if self._process in self._host.agent.exits:
                self._limited = False
                self._host.soon(lambda: self._set(None))
            else:
                self._limit(None)

    @property
    def throttled(self) -> bool:
        """Return whether a limit is on."""
        return self._limited

    def _limit(self, processors: float | None) -> None:
        self._limited = processors is not None
        self._set(processors)

    def _usage(self) -> tuple[float, float]:
        """Processors that it has used over the last seconds, and those that its agent has, which goes on as ever."""
        used = tuple(self._host.used)
        self._host.used.clear()  # what was before tells nothing of what will be after
        if len(used) < 2 or (seconds := used[-1].at - used[0].at) < _LEAST_HISTORY_S:
            return 1.0, 0.0
        own = (used[-1].by_agent - used[0].by_agent) / seconds
        return max((used[-1].by_all - used[0].by_all) / seconds - own, _LEAST), own
