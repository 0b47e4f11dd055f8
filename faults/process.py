"""Faults of processes: what a machine does to a node that it loses, stops, or believes to be lost."""

from __future__ import annotations

import math
import signal
from itertools import pairwise
from typing import ClassVar, Literal

from diloco_chaos.faults.base import DURATIONS, RETURNS, Drawn, Fault, FaultContext, Observation
from diloco_chaos.faults.double_run import came_back
from diloco_chaos.faults.evidence import SILENT, Effect, Evidence, Injection, status_words, statuses
from diloco_chaos.harness.base.units import Seconds, names, show_seconds
from diloco_chaos.harness.places.base import Ability
from diloco_chaos.harness.record.tape.events import Exit, Hello, PartialFrame, Spawn, Superseded

TYPICAL_START_S = 3.0
"""What a new process needs until it trains, for the predicted availability only."""
_PARTIAL_WITHIN_S = 2.0
_LAST_WORDS_S = 0.2


class Ending(Fault):
    """The process ends. The cluster's restart policy brings the node back: there is no undo that could race it. What is
    observed is the exit status that the kernel reported; the tape has it."""

    reversible: ClassVar[bool] = False
    stops_target: ClassVar[bool] = True
    frees: ClassVar[bool] = True
    gently: ClassVar[bool] = False
    """Whether it is asked to end, or ended."""

    restart_after: Seconds | None = None
    """From its end until the cluster starts it again; none: it stays dead."""

    def inject(self, hit: FaultContext) -> Observation:
        """End every target."""
        end = hit.cluster.terminate if self.gently else hit.cluster.kill
        for target in self.targets:
            end(target, self.restart_after)
        return {}

    def verify(self, run: Evidence, on: Injection) -> Effect:
        """It ended in good order, or by SIGTERM before it could say so, or by the SIGKILL that follows."""
        return statuses(run, self.targets, on, (0, -signal.SIGTERM, -signal.SIGKILL))

    def describe(self) -> str:
        """Return what the fault does, in words for people."""
        return f"{self.kind} {names(self.targets)}{self.back()}"

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
        if not ok or self.when is None or not str(self.when.failpoint).endswith(".half"):
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


class Terminate(Ending):
    """SIGTERM: the node may end in good order; SIGKILL follows where it does not."""

    needs: ClassVar[frozenset[Ability]] = frozenset({"terminate", "restart"})
    gently: ClassVar[bool] = True
    drawn = Drawn(10, {"restart_after": RETURNS}, at_failpoints=True, family="ends")

    kind: Literal["terminate"] = "terminate"


class Restart(Ending):
    """SIGTERM, and started again at once: an upgrade, or an operator's habit."""

    needs: ClassVar[frozenset[Ability]] = frozenset({"terminate", "restart"})
    gently: ClassVar[bool] = True
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
            wrote = run.tape.moments((target, run.tape.newest(target, on.began)))
            inside = [on.began, *(t for t in wrote if on.began < t < end), end]
            silences.append(max((later - earlier for earlier, later in pairwise(inside)), default=0.0))
        shortest = min(silences)
        return Effect(shortest >= SILENT * asked > 0, f"silent for {show_seconds(shortest)}")

    def describe(self) -> str:
        """Return what the fault does, in words for people."""
        return f"pause {names(self.targets)} {self.describe_duration()}"

    def expected_lost_time(self) -> float:
        """It does nothing meanwhile."""
        return self.duration or 0.0


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
