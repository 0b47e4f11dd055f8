"""Is what was counted kept, how much is made, and by how many? For trainers whose workers number their rounds."""

from __future__ import annotations

from diloco_chaos.chaos.checks.base import (
    QUIET_S,
    Figure,
    Finding,
    at_least,
    at_most,
    check,
    members,
    need,
    need_before,
    zero,
)
from diloco_chaos.chaos.evidence.history import History
from diloco_chaos.chaos.scenario.bounds import LostRounds, RoundQuorum
from diloco_chaos.harness.base.lines import Line, line, text
from diloco_chaos.harness.record.tape.events import Step


@check(LostRounds, needs={"rounds"}, unverified="judged")
def rounds_never_go_back(history: History, bound: LostRounds) -> Finding:
    """No worker begins again behind rounds that were reported before, by more than the scenario allows.

    A process that was started again is held against the newest round of all where they finish rounds together, and of
    its predecessors where each counts its own; one that goes on, against its own.
    """
    steps = sorted(history.tape.of(Step), key=lambda event: event.t)
    need(steps, "no worker told of a round")
    together = history.plan.cluster.blocking
    newest: dict[str, int] = {}
    own: dict[tuple[str, int], int] = {}
    lost: list[tuple[int, Line]] = []
    for event in steps:
        process, number = (event.node, event.inc), event.step
        before = own.get(process)
        if before is None:
            before = max((last for node, last in newest.items() if together or node == event.node), default=number)
            verb = "began with"
        else:
            verb = "told of"
        if number < before:
            lost.append((before - number, line(f"{event.node}.{event.inc} {verb} round {number} at ", event.t,
                                               f", when round {before} had been told")))
        own[process] = number
        newest[event.node] = max(newest.get(event.node, 0), number)
    most = max((rounds for rounds, _ in lost), default=0)
    return Finding(most <= bound.rounds, f"{most} rounds lost", at_most(bound.rounds),
                   [words for _, words in sorted(lost, key=lambda entry: (entry[0], text(entry[1])), reverse=True)[:3]],
                   figures=[Figure(value=most, limit=bound.rounds, unit="rounds")])


@check(RoundQuorum, needs={"sound run", "rounds"}, unverified="judged")
def round_quorum(history: History, bound: RoundQuorum) -> Finding:
    """No round after the steady state has fewer members than were promised: the workers that reported it, or as many as
    one of them says."""
    need(history.plan.cluster.blocking, "workers finish no round together (`shared: false`): each has one member")
    start = zero(history)
    counted = [(members(merge), merge) for merge in history.merges if start <= merge.t <= history.end]
    need(counted, "no round was made after the steady state")
    few = [(count, merge) for count, merge in counted if count < bound.at_least]
    fewest = min(count for count, _ in counted)
    return Finding(not few, f"fewest members {fewest}", at_least(bound.at_least),
                   [line(f"round {merge.round} at ", merge.t, f" had {count}") for count, merge in sorted(
                       few, key=lambda entry: entry[0])[:3]],
                   figures=[Figure(value=fewest, limit=bound.at_least, best=len(history.plan.cluster.names),
                                   unit="learners")])


def goodput_of_rounds(history: History, least: float) -> Finding:
    """New rounds, by their members, held against the pace before the first fault: a round that is made again is no
    progress."""
    start, first, end = zero(history), history.first_fault, history.end
    need_before(first - start, QUIET_S, "the pace")
    own, whole = (_made(history, start, until) / history.seconds(start, until) for until in (first, end))
    need(own > 0, "no round was made before the first fault")
    value = min(1.0, whole / own)
    return Finding(value >= least, f"{value:.1%}", at_least(f"{least:.1%}"),
                   [f"{whole:.2f} members' rounds in a second after the steady state, and {own:.2f} before the first "
                    f"fault"], figures=[Figure(value=value, limit=least, best=1.0, unit="share")])


def _made(history: History, start: float, end: float) -> int:
    """Members of the rounds that were made in [start, end), each round once."""
    newest: dict[str, int] = {}
    made = 0
    for merge in history.merges:
        whose = "" if history.plan.cluster.blocking else merge.contributions[0].learner
        if merge.step > newest.get(whose, -1):
            newest[whose] = merge.step
            made += members(merge) if start <= merge.t < end else 0
    return made
