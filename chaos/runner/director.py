"""Whoever decides while a run goes on what is done next: a test, in a thread of its own.

The run's own thread looks here once a tick (`look`). What the test asks for is done there, so cluster and tape keep to
one thread; what it waits for is looked at there, too, by the run's own time. Where time is virtual (`holds`) it stands
still while the test waits for nothing: between two of its lines nothing happens, so a test is the same every time.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, TypeVar

from diloco_chaos.harness.base.units import show_seconds
from diloco_chaos.harness.record.tape.events import Event, Injected, Merge, Steady

T = TypeVar("T")


class RunOverError(AssertionError):
    """The run had ended before it could do what was asked."""


class NotInTimeError(AssertionError):
    """What a test waited for did not come."""


@dataclass
class Seen:
    """The state of a run, as far as the tape has shown it."""

    now: float = 0.0
    """Seconds since the run began."""
    zero: float | None = None
    """When the steady state was reached."""
    rounds: int = 0
    """Merges, or rounds of a trainer that tells of these, so far."""
    injected: set[str] = field(default_factory=set)
    """Faults by their names."""


Met = Callable[[Seen], bool]


@dataclass
class _Wait:
    met: Met
    within: float
    what: str
    done: Future[None] = field(default_factory=Future)
    until: float | None = None


class Director:
    """The requests of a test to a run. `look`, `on_event` and `over` are called by the run's thread, all else by the
    test's."""

    def __init__(self, *, holds: bool) -> None:
        self._holds = holds
        self._change = threading.Condition()
        self._asked: deque[tuple[Callable[[Any], Any], Future[Any]]] = deque()
        self._wait: _Wait | None = None
        self._stop = ""
        self._over: str | None = None
        self.seen = Seen()

    def ask(self, what: Callable[[Any], T]) -> T:
        """Have this done by the run's thread, with the experiment as its argument.

        Raises:
            RunOverError: the run has ended; and whatever `what` raises.
        """
        answer: Future[T] = Future()
        with self._change:
            self._must_go_on()
            self._asked.append((what, answer))
            self._change.notify_all()
        return answer.result()

    def wait(self, met: Met, within: float, what: str) -> None:
        """Let the run go on until this is met. `within`: so many seconds of the run at most; `what`: for people.

        Raises:
            NotInTimeError: it was not met by then.
            RunOverError: the run ended before it was.
        """
        wait = _Wait(met, within, what)
        with self._change:
            self._must_go_on()
            self._wait = wait
            self._change.notify_all()
        wait.done.result()

    def release(self) -> None:
        """Nothing more is asked for: let the run go on to its end."""
        with self._change:
            self._holds = False
            self._change.notify_all()

    def stop(self, why: str) -> None:
        """End the run now."""
        with self._change:
            self._stop = self._stop or why
            self._change.notify_all()

    def on_event(self, event: Event) -> None:
        """An event came up on the tape."""
        if isinstance(event, Steady) and self.seen.zero is None:
            self.seen.zero = event.t
        elif isinstance(event, Merge):
            self.seen.rounds += 1
        elif isinstance(event, Injected):
            self.seen.injected.add(event.fault)

    def look(self, experiment: Any, now: float) -> str:
        """Do what is asked for; why the run is to end now, if it is."""
        self.seen.now = now
        while True:
            with self._change:
                self._look_at_what_is_waited_for()
                while not (self._asked or self._stop or self._wait or not self._holds):
                    self._change.wait()
                if self._stop or not self._asked:
                    return self._stop
                what, answer = self._asked.popleft()
            try:
                answer.set_result(what(experiment))
            except Exception as error:  # the test's own to deal with
                answer.set_exception(error)

    @property
    def next_at(self) -> float:
        """Return when a wait is over, in seconds since the run began; infinite where there is none."""
        wait = self._wait
        return float("inf") if wait is None or wait.until is None else wait.until

    def over(self, why: str) -> None:
        """Note that the run has ended: no caller waits any longer."""
        with self._change:
            self._over = why
            for _, answer in self._asked:
                answer.set_exception(RunOverError(why))
            self._asked.clear()
            if self._wait is not None:
                self._wait.done.set_exception(RunOverError(f"{why}, and {self._wait.what} was waited for"))
                self._wait = None

    def _must_go_on(self) -> None:
        if self._over is not None:
            raise RunOverError(self._over)

    def _look_at_what_is_waited_for(self) -> None:
        wait = self._wait
        if wait is None:
            return
        if wait.until is None:
            wait.until = self.seen.now + wait.within
        if wait.met(self.seen):
            self._wait = None
            wait.done.set_result(None)
        elif self.seen.now >= wait.until:
            self._wait = None
            wait.done.set_exception(NotInTimeError(f"{wait.what} did not come within {show_seconds(wait.within)}; "
                                                   f"{self.seen.rounds} rounds had been made"))
