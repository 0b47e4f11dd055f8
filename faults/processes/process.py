"""Faults of processes: what a machine does to a node that it loses, stops, or believes to be lost."""

from __future__ import annotations

import math
import signal
from itertools import pairwise
from typing import Any, ClassVar, Literal

from pydantic import SerializerFunctionWrapHandler, model_serializer, model_validator

from diloco_chaos.faults.base import DURATIONS, RETURNS, AskedBy, Drawn, Fault, FaultContext, Observation
from diloco_chaos.faults.evidence import SILENT, Effect, Evidence, Injection, exits, status_words, statuses
from diloco_chaos.faults.processes.double_run import came_back
from diloco_chaos.faults.within.unsynced import Lost, kill_unsynced, with_loss
from diloco_chaos.harness.base.units import Seconds, names, show_seconds
from diloco_chaos.harness.places.base import STOP_TIMEOUT_S, Ability
from diloco_chaos.harness.places.capabilities import Processes
from diloco_chaos.harness.record.tape.events import Exit, Hello, PartialFrame, Spawn, Superseded

TYPICAL_START_S = 3.0
"""What a new process needs until it trains, for the predicted availability only."""
_PARTIAL_WITHIN_S = 2.0
_LAST_WORDS_S = 0.2
_LONG_S = 1.0
"""Who was asked to end and took longer than this took its time."""


class Ending(Fault):
    """The process ends. The cluster's restart policy brings the node back: there is no undo that could race it. What is
    observed is the exit status that the kernel reported; the tape has it."""

    reversible: ClassVar[bool] = False
    stops_target: ClassVar[bool] = True
    frees: ClassVar[bool] = True
    restart_after: Seconds | None = None
    """From its end until the cluster starts it again; none: it stays dead."""

    def inject(self, hit: FaultContext) -> Observation:
        """End every target."""
        for target in self.targets:
            hit.cluster.kill(target, self.restart_after)
        return {}

    def verify(self, run: Evidence, on: Injection) -> Effect:
        """It ended by itself within the grace period, with whatever status, or by the SIGKILL that follows."""
        exited = exits(run, self.targets, on, self.grace_s)
        if missing := [target for target in self.targets if target not in exited]:
            return Effect(False, f"{', '.join(missing)} did not end")
        return Effect(True, ", ".join(_manner(gone, on.began) for gone in exited.values()))

    def describe(self) -> str:
        """Return what the fault does, in words for people."""
        return f"{self.kind} {names(self.targets)}{self.back()}"

    @property
    def grace_s(self) -> float:
        """Return how many seconds the target has to end by itself."""
        return STOP_TIMEOUT_S

    def expected_lost_time(self) -> float:
        """Return the time until the target trains again, in seconds; infinite where it is not started again."""
        return float("inf") if self.restart_after is None else self.restart_after + TYPICAL_START_S

    def expected_duration(self) -> float | None:
        """Return the time until the target is started again, in seconds; None where it is not."""
        return self.restart_after

    def starts_process(self) -> bool:
        """Unless it stays dead."""
        return self.restart_after is not None

    def back(self) -> str:
        """Return when the target is started again, in words for people; empty where it is not."""
        return "" if self.restart_after is None else f", back after {show_seconds(self.restart_after)}"


class Killed(Ending):
    """Ends without a last word."""

    def verify(self, run: Evidence, on: Injection) -> Effect:
        """SIGKILL is what the kernel reports, and nothing came after it."""
        ok, words, _ = statuses(run, self.targets, on, (-signal.SIGKILL,))
        for target in self.targets:
            if (ghost := _ghost(run, target, on.began)) is not None:
                return Effect(False, f"{words}, but {target}.{ghost} went on recording")
        half = self.when is not None and str(self.when.failpoint).endswith(".half")
        if not ok or not half or run.coordinator is None:  # else the name is one that a user gave
            return Effect(ok, words)
        partial = next((event for event in run.tape.of(PartialFrame, node=run.recorder)
                        if event.peer in self.targets and abs(event.t - on.began) < _PARTIAL_WITHIN_S), None)
        if partial is None or not 0 < partial.bytes < partial.expected:
            return Effect(False, f"{words}, but the syncer saw no part of a frame")
        return Effect(True, f"{words}; {partial.bytes} of {partial.expected} bytes arrived")


class Kill(Killed):
    """SIGKILL: no last word."""

    needs: ClassVar[frozenset[Ability]] = frozenset({"kill", "restart"})
    drawn = Drawn(0, {"restart_after": RETURNS}, at_failpoints=True, family="ends")

    kind: Literal["kill"] = "kill"
    only: Literal["process"] | None = None
    """`process`: the node's first process alone, whose forks live on, as after a segmentation fault or the kernel's
    choice when memory is short. None: all that the node has started dies with it."""
    lose_unsynced: Lost | None = None
    """What the node wrote into files and did not sync is lost, as if its machine had lost its power: into those that a
    pattern means, or, true, into all of them. That can't be undone."""

    @model_validator(mode="after")
    def _whole_node(self) -> Kill:
        if self.only is not None and self.lose_unsynced is not None:
            raise ValueError("a machine without power loses all of the node's processes: leave `only` out")
        return self

    @model_serializer(mode="wrap")
    def _without_defaults(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Return the document without what older frozen plans lack."""
        document: dict[str, Any] = serialize(self)
        return {key: value for key, value in document.items()
                if (key, value) not in (("only", None), ("lose_unsynced", None))}

    def requires(self) -> frozenset[Ability]:
        """Return more where one process must be told from those that it has started, or its files lose something."""
        more: dict[Ability, bool] = {"signal_process": self.only is not None,
                                     "lose_unsynced": self.lose_unsynced is not None}
        return self.needs | {ability for ability, asked in more.items() if asked}

    def inject(self, hit: FaultContext) -> Observation:
        """End every target, or its first process."""
        if self.lose_unsynced is not None:
            return kill_unsynced(hit, self.targets, self.restart_after, self.lose_unsynced)
        if self.only is None:
            return super().inject(hit)
        for target in self.targets:
            hit.having(Processes).kill_first(target, self.restart_after)
        return {}

    def describe(self) -> str:
        """Return what the fault does, with what it spares."""
        spared = " (its first process alone)" if self.only else ""
        files = "" if self.lose_unsynced is True else f" of {self.lose_unsynced}"
        lost = "" if self.lose_unsynced is None else f" with what was not synced{files}"
        return f"kill {names(self.targets)}{spared}{lost}{self.back()}"

    def verify(self, run: Evidence, on: Injection) -> Effect:
        """As of every kill; and something was lost, where that was asked for."""
        killed = super().verify(run, on)
        return killed if self.lose_unsynced is None else with_loss(killed, on)


class Asked(Ending):
    """It is asked to end by a signal, and may do so in good order; SIGKILL follows where it has not within the grace
    period."""

    signal: AskedBy = "TERM"
    """How it is asked; other than TERM: commands only."""
    grace: Seconds | None = None
    """After so long SIGKILL follows. None: after two seconds, which is enough for nodes of ours; a scenario whose nodes
    are commands gets 30 s, as from most schedulers."""

    @model_serializer(mode="wrap")
    def _without_defaults(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Return the document without what older frozen plans lack."""
        document: dict[str, Any] = serialize(self)
        return {key: value for key, value in document.items()
                if (key, value) not in (("signal", "TERM"), ("grace", None))}

    def inject(self, hit: FaultContext) -> Observation:
        """Ask every target to end."""
        for target in self.targets:
            hit.cluster.terminate(target, self.restart_after, signal.Signals[f"SIG{self.signal}"], self.grace_s)
        return {}

    def describe(self) -> str:
        """Return what the fault does, with the signal where that is another one than usual."""
        by = "" if self.signal == "TERM" else f" by SIG{self.signal}"
        return f"{self.kind} {names(self.targets)}{by}{self.back()}"

    @property
    def grace_s(self) -> float:
        """Return what the scenario says."""
        return super().grace_s if self.grace is None else self.grace


def _manner(gone: Exit, began: float) -> str:
    """Say how a process that was asked to end has ended, and after how long where that was long."""
    words, took = f"exit status {status_words(gone.status)}", gone.t - began
    if gone.forced_after is not None and gone.status == -signal.SIGKILL:
        return f"{words}, which had to follow after {show_seconds(gone.forced_after)}"
    return f"{words} after {show_seconds(took)}" if took >= _LONG_S else words


class Terminate(Asked):
    """SIGTERM: the node may end in good order; SIGKILL follows where it does not."""

    needs: ClassVar[frozenset[Ability]] = frozenset({"terminate", "restart"})
    drawn = Drawn(10, {"restart_after": RETURNS}, at_failpoints=True, family="ends")

    kind: Literal["terminate"] = "terminate"


class Restart(Asked):
    """SIGTERM, and started again at once: an upgrade, or an operator's habit."""

    needs: ClassVar[frozenset[Ability]] = frozenset({"terminate", "restart"})
    drawn = Drawn(20, {"restart_after": ("0s",)}, at_failpoints=True, family="ends")

    kind: Literal["restart"] = "restart"
    restart_after: Seconds = 0.0

    def back(self) -> str:
        """Return no words: the target is started at once, which is what a restart is for."""
        return ""


class Join(Fault):
    """A learner that was not there from the beginning: the cluster grows while training goes on."""

    needs: ClassVar[frozenset[Ability]] = frozenset({"join"})
    reversible: ClassVar[bool] = False
    brings_target: ClassVar[bool] = True
    target_role = "learner"

    kind: Literal["join"] = "join"

    def inject(self, hit: FaultContext) -> Observation:
        """Start every target."""
        for target in self.targets:
            hit.cluster.join(hit.spec(target))
        return {}

    def verify(self, run: Evidence, on: Injection) -> Effect:
        """Every target was started, and the syncer heard from it."""
        hello = {event.learner: event.t for event in run.tape.of(Hello, node=run.recorder) if event.t >= on.began}
        missing = [target for target in self.targets if target not in hello]
        if missing:
            return Effect(False, f"the syncer never heard of {', '.join(missing)}")
        took = max(hello[target] for target in self.targets) - on.began
        return Effect(True, f"known to the syncer after {show_seconds(took)}")

    def describe(self) -> str:
        """Return what the fault does, in words for people."""
        return f"{names(self.targets)} {'joins' if len(self.targets) == 1 else 'join'}"

    def expected_lost_time(self) -> float:
        """Return the time until the target trains, in seconds from the steady state on."""
        return (self.at or 0.0) + TYPICAL_START_S


class Pause(Fault):
    """SIGSTOP, and SIGCONT at the end: a process that the machine forgets. With `when: {failpoint: upload.half}` it
    stands still in the middle of an upload."""

    needs: ClassVar[frozenset[Ability]] = frozenset({"pause"})
    frees: ClassVar[bool] = True
    halts_target: ClassVar[bool] = True
    occupies: ClassVar[str] = "process"
    shown_as = "paused"
    drawn = Drawn(40, {"for": DURATIONS}, at_failpoints=True, family="slow")

    kind: Literal["pause"] = "pause"

    def inject(self, hit: FaultContext) -> Observation:
        """Stop every target."""
        for target in self.targets:
            hit.cluster.pause(target)
        return {}

    def undo(self, hit: FaultContext) -> None:
        """Let them go on."""
        for target in self.targets:
            hit.cluster.resume(target)

    def verify(self, run: Evidence, on: Injection) -> Effect:
        """Every target recorded nothing for as long as it was to last, or did if it was undone before. A process whose
        successor was there already is not the one that stood."""
        end = run.until(on)
        asked = min(self.duration or 0.0, end - on.began)
        silences = []
        for target in self.targets:
            process = target, run.tape.newest(target, on.began)
            wrote, gone = run.tape.moments(process), _ended_meanwhile(run, process, on.began, end)
            until = end if gone is None else gone.t
            inside = [on.began, *(t for t in wrote if on.began < t < until), until]
            silence = max((later - earlier for earlier, later in pairwise(inside)), default=0.0)
            silences.append((silence / min(asked, until - on.began) if until > on.began else 0.0, silence,
                             "" if gone is None else _replaced(run, gone)))
        share, shortest, _ = min(silences)
        meanwhile = "".join(words for *_, words in silences)
        return Effect(share >= SILENT and asked > 0, f"silent for {show_seconds(shortest)}{meanwhile}")

    def describe(self) -> str:
        """Return what the fault does, in words for people."""
        return f"pause {names(self.targets)} {self.describe_duration()}"

    def expected_lost_time(self) -> float:
        """It does nothing meanwhile."""
        return self.duration or 0.0


def _ended_meanwhile(run: Evidence, process: tuple[str, int], began: float, end: float) -> Exit | None:
    """Return the end of a process that stood still, where it came before it was to go on."""
    return next((event for event in run.tape.of(Exit, node="harness")
                 if event.process == process and began < event.t < end), None)


def _replaced(run: Evidence, gone: Exit) -> str:
    """Say that a process which stood still was ended, and what took its place."""
    later = next((event for event in run.tape.of(Spawn, node="harness")
                  if event.target == gone.target and event.incarnation > gone.incarnation), None)
    place = "" if later is None else f", and {later.target}.{later.incarnation} took its place"
    return f"; then {gone.target}.{gone.incarnation} was ended ({status_words(gone.status)}){place}"


_SEES_S = 10.0
"""A process that is back, and whose successor is known to the syncer, has seen so within this time."""


class Zombie(Fault):
    """A stale incarnation: the process stands still, its successor is started beside it, and then it comes back."""

    needs: ClassVar[frozenset[Ability]] = frozenset({"supersede"})
    supersedes: ClassVar[bool] = True
    target_role = "learner"
    halts_target: ClassVar[bool] = True
    occupies: ClassVar[str] = "process"
    drawn = Drawn(140, {"for": DURATIONS}, family="zombie")

    kind: Literal["zombie"] = "zombie"

    def inject(self, hit: FaultContext) -> Observation:
        """Stop the old ones, start the new ones."""
        for target in self.targets:
            hit.cluster.supersede(target)
        return {}

    def undo(self, hit: FaultContext) -> None:
        """Let the old ones go on: they must see that they are not wanted, and end."""
        for target in self.targets:
            hit.cluster.revive(target)

    def verify(self, run: Evidence, on: Injection) -> Effect:
        """A successor was started beside each target; the old one, back again, saw it, and ended."""
        said = []
        for target in self.targets:
            successor = _beside(run, target, on.began)
            if successor is None:
                return Effect(False, f"{target} got no successor")
            if run.coordinator is None:  # no node tells it that it is superseded
                if not (effect := came_back(run, on, target, successor)).ok or not effect.reacted:
                    return effect
                said.append(effect.observed)
                continue
            old = successor - 1
            seen = any(event.node == target and event.inc == old for event in run.tape.of(Superseded))
            gone = next((event for event in run.tape.of(Exit, node="harness")
                         if (event.target, event.incarnation) == (target, old)), None)
            if gone is not None and not seen and _ended_by_another(run, gone):
                return Effect(False, f"{target}.{old} was ended by another fault before it could see its successor")
            if gone is None or not seen:
                heard = any(event.learner == target and event.incarnation == successor
                            for event in run.tape.of(Hello, node=run.recorder))
                back = on.ended is not None and run.end - on.ended > _SEES_S
                return Effect(heard and back, f"{target}.{old} " + (
                    "did not end" if gone is None else "never saw that it was superseded"), reacted=False)
            said.append(f"{target}.{old} came back, saw {target}.{successor}, and ended "
                        f"({status_words(gone.status)})")
        return Effect(True, "; ".join(said))

    def describe(self) -> str:
        """Return what the fault does, in words for people."""
        return f"supersede {names(self.targets)}, whose old process comes back after {show_seconds(self.duration or 0)}"

    def expected_lost_time(self) -> float:
        """Return the time until the successor trains, in seconds."""
        return TYPICAL_START_S


def _ended_by_another(run: Evidence, gone: Exit) -> bool:
    """Return whether a process was killed, or asked to end."""
    return (gone.status or 0) < 0 or any(event.inc == gone.incarnation and event.told
                                         for event in run.tape.of(Exit, node=gone.target))


def _beside(run: Evidence, target: str, began: float) -> int | None:
    """The incarnation that was started while the one before it was there; None: none was, as there were two already, or
    no process."""
    gone: set[int] = set()
    for event in run.tape.of(Spawn, Exit, node="harness"):
        if event.target != target:
            continue
        if isinstance(event, Exit):
            gone.add(event.incarnation)
        elif event.t >= began - 0.1:
            return None if event.incarnation - 1 in gone else int(event.incarnation)
    return None


def _ghost(run: Evidence, target: str, at: float) -> int | None:
    """The incarnation that was killed, where it recorded anything more than a moment later."""
    gone = [event for event in run.tape.of(Exit, node="harness") if event.target == target
            and event.killed and abs(event.t - at) < _PARTIAL_WITHIN_S]
    ends = run.tape.ends
    return next((event.incarnation for event in gone
                 if ends.get((target, event.incarnation), -math.inf) > event.t + _LAST_WORDS_S), None)
