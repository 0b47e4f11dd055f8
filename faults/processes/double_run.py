"""What an old process of a trainer of commands does that comes back beside its successor, by the rounds it tells."""

from __future__ import annotations

from diloco_chaos.faults.evidence import Effect, Evidence, Injection, status_words
from diloco_chaos.harness.base.units import show_seconds
from diloco_chaos.harness.record.tape.events import Exit, StaleRound, Step

_QUIET_S = 10.0
"""One that lives, and tells of no round for so long, is taken to have seen that it is not wanted."""


def reported_beside(run: Evidence, target: str, successor: int, since: float) -> list[StaleRound]:
    """Return the rounds that the process before `successor` reported from then on, when that had reported one, too."""
    heard = _heard(run, target, successor)
    return [] if heard is None else [event for event in run.tape.of(StaleRound, node=target)
                                     if event.inc == successor - 1 and event.t >= max(since, heard)]


def _heard(run: Evidence, target: str, incarnation: int) -> float | None:
    """Return when a process reported its first round, in seconds; None: it reported none."""
    return next((event.t for event in run.tape.of(Step, node=target) if event.inc == incarnation), None)


def came_back(run: Evidence, on: Injection, target: str, successor: int) -> Effect:
    """Return what became of the process before `successor`: it has to end, or to tell of no round. The round that it
    was in as it was stopped is no second one."""
    old, back = f"{target}.{successor - 1}", on.ended
    if back is None:
        return Effect(False, f"{old} did not come back")
    heard = _heard(run, target, successor)
    if heard is None:
        return Effect(False, f"{target}.{successor} told of no round, so {old} had no reason to end")
    told = reported_beside(run, target, successor, back)
    gone = next((event for event in run.tape.of(Exit, node="harness")
                 if (event.target, event.incarnation) == (target, successor - 1)), None)
    if len(told) > 1:
        return Effect(True, f"{old} came back and went on to train beside {target}.{successor}: it told of round "
                            f"{told[0].round} and others after that", reacted=False)
    if gone is not None and gone.t < back:
        return Effect(False, f"{old} ended before it came back ({status_words(gone.status)})")
    if gone is not None:
        return Effect(True, f"{old} came back and ended ({status_words(gone.status)})")
    quiet = run.end - max(back, heard)
    words = f"{old} came back and told of no round for {show_seconds(quiet)}"
    return Effect(True, words) if quiet >= _QUIET_S else Effect(
        False, f"{words}: let the run go on for {show_seconds(_QUIET_S)} to know")
