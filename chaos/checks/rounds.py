"""Is what was counted kept? For trainers whose workers number their rounds."""

from __future__ import annotations

from chaos.checks.base import Finding, check, need
from chaos.evidence.history import History
from chaos.scenario.bounds import Lost


@check(Lost, needs={"rounds"}, unverified="judged")
def rounds_never_go_back(history: History, bound: Lost) -> Finding:
    """No worker begins again behind rounds that were told before, by more than the scenario allows.

    A process that was started again is held against the newest round of all where they finish rounds together, and of
    its predecessors where each counts its own; one that goes on, against its own.
    """
    steps = sorted(history.tape.of("step"), key=lambda event: event.t)
    need(steps, "no worker told of a round")
    together = history.plan.cluster.blocking
    newest: dict[str, int] = {}
    own: dict[tuple[str, int], int] = {}
    lost: list[tuple[int, str]] = []
    for event in steps:
        process, number = (event.node, event.incarnation), event["step"]
        before = own.get(process)
        if before is None:
            before = max((last for node, last in newest.items() if together or node == event.node), default=number)
            words = f"{event.node}.{event.incarnation} began with round {number} at {event.t:.2f} s, when"
        else:
            words = f"{event.node}.{event.incarnation} told of round {number} at {event.t:.2f} s, when"
        if number < before:
            lost.append((before - number, f"{words} round {before} had been told"))
        own[process] = number
        newest[event.node] = max(newest.get(event.node, 0), number)
    most = max((rounds for rounds, _ in lost), default=0)
    return Finding(most <= bound.rounds, f"{most} rounds lost", f"≤ {bound.rounds}",
                   [words for _, words in sorted(lost, reverse=True)[:3]])
