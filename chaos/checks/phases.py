"""Was a fault noticed soon enough, and was each phase of a recovery over soon enough?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from diloco_chaos.chaos.checks.base import Bound, Figure, Finding, Late, at_most, beside, check, longer, need
from diloco_chaos.chaos.evidence.history import History
from diloco_chaos.chaos.evidence.phases import FIRST_ROUND, NOTICED, Phase, Recovery, recoveries, takes_out
from diloco_chaos.chaos.scenario.bounds import RecoveredWithin, Within
from diloco_chaos.harness.base.lines import Line, line
from diloco_chaos.harness.base.units import show_seconds


class _Taken(NamedTuple):
    """How long after the injection a phase ended."""

    recovery: Recovery
    phase: Phase
    within: float
    seconds: float | None
    """None: it did not end before the run did."""

    @property
    def holds(self) -> bool:
        return self.seconds is not None and self.seconds <= self.within

    @property
    def words(self) -> Line:
        began, target = self.recovery.span.began, self.recovery.target
        if self.phase.t is None:
            return line(f"{target} was hit at ", began, f"; {self.phase.name}: {self.phase.missing}")
        return line(f"{target} was hit at ", began, f"; {self.phase.name}, by {self.phase.by}, at ", self.phase.t)


@check(Within)
def noticed_within(history: History, bound: Within) -> Finding | None:
    """Somebody notices that a node is out, or makes a round without it, within the scenario's bound after the fault
    came. A node that has part in a round again before that time need not be missed."""
    taken = []
    for recovery in _hit(history):
        back, seconds = recovery.after(FIRST_ROUND), recovery.to_detect
        if seconds is not None or back is None or back > bound.within:
            phase = next(phase for phase in recovery.phases if phase.name == NOTICED)
            need(seconds is not None or phase.ending == "never", f"{recovery.target}: {phase.missing}")
            taken.append(_taken(history, recovery, phase, bound.within, seconds))
    return _finding({NOTICED: bound.within}, taken)


@check(RecoveredWithin)
def recovered_within(history: History, bound: RecoveredWithin) -> Finding | None:
    """Each phase of a recovery that the scenario names is over within its bound after the fault came."""
    limits = bound.limits
    taken = []
    for recovery in _hit(history):
        for phase in recovery.phases:
            if phase.name in limits and phase.ending != "idle":
                need(phase.t is not None or phase.ending == "never",
                     f"{recovery.target}, {phase.name}: {phase.missing}")
                seconds = recovery.after(phase.name)
                taken.append(_taken(history, recovery, phase, limits[phase.name], seconds))
    return _finding(limits, taken)


def _hit(history: History) -> list[Recovery]:
    found = history.once(recoveries)
    planned = any(takes_out(planned.fault) for planned in history.plan.faults)
    need(found or not planned, "no fault took a node out", longer(history))
    return [recovery for recovery in found if recovery.successor or not recovery.span.planned.fault.is_final()]


def _taken(history: History, recovery: Recovery, phase: Phase, within: float, seconds: float | None) -> _Taken:
    need(seconds is not None or history.seconds(recovery.span.began, history.end) > within,
         f"the run ended before the {show_seconds(within)} of {recovery.target} were over", longer(history))
    return _Taken(recovery, phase, within, seconds)


def _finding(limits: Mapping[str, float], taken: list[_Taken]) -> Finding | None:
    if not taken:
        return None
    taken.sort(key=lambda one: float("inf") if one.seconds is None else one.seconds - one.within, reverse=True)
    worst = taken[0]
    measured, limit = ("never", show_seconds(worst.within)) if worst.seconds is None else beside(
        worst.seconds, worst.within)
    named = f"{worst.phase.name} " if len(limits) > 1 else ""
    bounds = Bound(", ".join(f"{name} {at_most(show_seconds(within))}" for name, within in limits.items())
                   ) if len(limits) > 1 else at_most(limit)
    return Finding(all(one.holds for one in taken), f"{named}{measured}, {worst.recovery.target}", bounds,
                   [one.words for one in taken],
                   [Late(one.recovery.span.began, one.phase.t or one.recovery.span.began + one.within, one.within)
                    for one in taken if not one.holds],
                   [Figure(of=one.phase.name, value=one.seconds, limit=one.within, unit="s") for one in taken])
