"""Preemption: a scheduler needs a node's place, and starts the node again, maybe before its old process has ended."""

from __future__ import annotations

import signal
from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from diloco_chaos.faults.base import Drawn, FaultContext, Observation
from diloco_chaos.faults.evidence import Effect, Evidence, Injection, status_words
from diloco_chaos.faults.processes.double_run import reported_beside
from diloco_chaos.faults.processes.process import TYPICAL_START_S, Asked
from diloco_chaos.harness.base.units import Seconds, names, show_seconds
from diloco_chaos.harness.places.base import Ability, Preemption
from diloco_chaos.harness.record.tape.events import Exit, Spawn

_EARLY_S = 0.1
"""An end may be recorded so much too early."""


class Preempt(Asked):
    """The node's place is needed. Its process gets `signal`, and `notice` later SIGTERM, which asks it to end; without
    a notice the signal itself does. `grace` after it was asked to end SIGKILL follows. Its successor starts
    `restart_after` its end, or, as of a requeued job, `beside` it: so long after it was asked to end."""

    needs: ClassVar[frozenset[Ability]] = frozenset({"terminate", "restart"})
    drawn = Drawn(15, {"beside": ("0s",)}, family="ends", role="learner")

    kind: Literal["preempt"] = "preempt"
    notice: Seconds | None = Field(None, gt=0)
    """From the signal to SIGTERM. None: the signal asks to end."""
    beside: Seconds | None = None
    """From when it is asked to end to the start of its successor, whether it has ended by then or not. None: the
    successor waits for its end."""

    @field_validator("beside", mode="before")
    @classmethod
    def _how_soon(cls, value: Any) -> Any:
        if isinstance(value, bool):
            raise ValueError("say how long after it was asked to end its successor starts: `beside: 0s`")
        return value

    @model_validator(mode="after")
    def _one_successor(self) -> Preempt:
        if self.beside is not None and self.restart_after is not None:
            raise ValueError("its successor starts once: beside it (`beside: 0s`), or after its end (`restart_after: "
                             "2s`)")
        return self

    def requires(self) -> frozenset[Ability]:
        """Return more where two processes of a node are to live at once."""
        return self.needs | ({"supersede"} if self.starts_beside() else set())

    def inject(self, hit: FaultContext) -> Observation:
        """Give every target its notice."""
        for target in self.targets:
            hit.cluster.preempt(target, Preemption(signal.Signals[f"SIG{self.signal}"], self.grace_s, self.notice,
                                                   self.restart_after, self.beside))
        return {}

    def verify(self, run: Evidence, on: Injection) -> Effect:
        """Each process ended in the order of signals, and lived beside its successor where it was to."""
        ended = [_end(run, target, on.began) for target in self.targets]
        if missing := [target for target, gone in zip(self.targets, ended, strict=True) if gone is None]:
            return Effect(False, f"{', '.join(missing)} did not end")
        said, reacted = [], True
        for gone in filter(None, ended):
            effect = self._beside(run, gone) if self.beside is not None else Effect(True, "")
            said.append(f"{gone.target} {self._manner(gone, gone.t - on.began)}{effect.observed}")
            if not effect.ok:
                return Effect(False, said[-1])
            reacted = reacted and effect.reacted
        return Effect(True, ", ".join(said), reacted)

    def describe(self) -> str:
        """Return what the fault does, in words for people."""
        first = f"SIG{self.signal}" + (f", SIGTERM {show_seconds(self.notice)} later" if self.notice else "")
        beside = "" if self.beside is None else ", its successor beside it" + (
            f" after {show_seconds(self.beside)}" if self.beside else "")
        return f"preempt {names(self.targets)} ({first}){beside}{self.back()}"

    def expected_lost_time(self) -> float:
        """Return the time until the target trains again, in seconds; infinite where it is not started again."""
        return TYPICAL_START_S + self.beside if self.beside is not None else super().expected_lost_time()

    def expected_duration(self) -> float | None:
        """Return the time until the successor is started, in seconds; None where none is."""
        until = self.beside if self.beside is not None else self.restart_after
        return None if until is None else (self.notice or 0.0) + until

    def starts_process(self) -> bool:
        """Unless it stays dead."""
        return self.expected_duration() is not None

    def starts_beside(self) -> bool:
        """Where the successor waits for no end."""
        return self.beside is not None

    def _manner(self, gone: Exit, took: float) -> str:
        """Say which signal ended a process, after so many seconds."""
        status = status_words(gone.status)
        if gone.forced_after is not None and gone.status == -signal.SIGKILL:
            return f"had to be killed, {show_seconds(gone.forced_after)} after it was asked to end"
        if self.notice is not None and took < self.notice:
            return f"ended within its notice, after {show_seconds(took)} ({status})"
        if self.notice is not None:
            return f"ended {show_seconds(took - self.notice)} after SIGTERM ({status})"
        return f"ended after {show_seconds(took)} ({status})"

    def _beside(self, run: Evidence, gone: Exit) -> Effect:
        """Return how long a process lived beside its successor, and whether it went on to train."""
        old, successor = f"{gone.target}.{gone.incarnation}", f"{gone.target}.{gone.incarnation + 1}"
        spawn = next((event for event in run.tape.of(Spawn, Exit, node="harness")
                      if event is gone or (isinstance(event, Spawn) and event.target == gone.target
                                           and event.incarnation == gone.incarnation + 1)), gone)
        if not isinstance(spawn, Spawn):
            remedy = ("Start that sooner (`beside: 0s`), or leave `notice` out" if self.beside or self.notice else
                      f"A process before {old} was still there: preempt it once that has ended")
            return Effect(False, f", before {successor} was started: nothing lived beside it. {remedy}")
        words = f"; {old} lived beside {successor} for {show_seconds(gone.t - spawn.t)}"
        rounds = reported_beside(run, gone.target, gone.incarnation + 1, spawn.t)
        if len(rounds) <= 1:  # which it was in
            return Effect(True, words)
        return Effect(True, f"{words}, and went on to train: it told of round {rounds[0].round} and others after that",
                      reacted=False)


def _end(run: Evidence, target: str, began: float) -> Exit | None:
    """Return how the process ended that was there when the fault came; None: it did not, or there was none."""
    started = run.tape.of(Spawn, node="harness")
    old = max((event.incarnation for event in started if event.target == target and event.t < began), default=0)
    return next((event for event in run.tape.of(Exit, node="harness")
                 if event.process == (target, old) and event.killed and event.t >= began - _EARLY_S), None)
