"""Was every merge made of a quorum, and closed when its grace window says?"""

from __future__ import annotations

from collections import defaultdict

from diloco_chaos.chaos.checks.base import Finding, at_least, check, need, rules_of, violations
from diloco_chaos.chaos.checks.diloco.witnesses import Witnesses
from diloco_chaos.chaos.evidence.clocks import WRITTEN_S
from diloco_chaos.chaos.evidence.history import History
from diloco_chaos.chaos.scenario.model import COORDINATOR
from diloco_chaos.harness.base.lines import Line, line
from diloco_chaos.harness.base.tensors import np
from diloco_chaos.harness.record.tape.events import Hello, Lost, Merge
from diloco_chaos.harness.trainers.api.settings import FragmentRules

_JUMP_S = 0.1
"""A round in which the syncer's clock jumped can't be recomputed."""


@check(needs={"fragments"}, unverified="judged")
def quorum_respected(history: History) -> Finding:
    """Distinct live learners per merge >= K; the grace window recomputed from the recorded times, and these held
    against what the learners saw, as are those who are said to have had nothing to give."""
    need(history.merges, "there are no merges")
    rules = rules_of(history)
    wrong: list[Line] = []
    parts, smallest = history.parts, history.plan.cluster.learners
    learners, arrivals, absent = parts.plain("learner"), parts.plain("arrived"), _absent(history)
    jumps = [span.injected for span in history.spans if span.planned.fault.moves_clock
             and COORDINATOR in span.planned.fault.targets and span.injected is not None]
    witnesses = Witnesses(history)
    for number, (merge, begin, count) in enumerate(zip(history.merges, parts.begins.tolist(), parts.counts.tolist(),
                                                       strict=True)):
        names = set(learners[begin:begin + count])
        smallest = min(smallest, len(names))
        problems = []
        if len(names) < rules.quorum or len(names) != count:
            problems.append(f"{len(names)} distinct learners in {count} contributions")
        if number in absent:
            problems.append("a contribution from a learner that was not there")
        if not any(merge.opened - _JUMP_S <= jump <= merge.t + _JUMP_S for jump in jumps):
            problems += _grace_problems(rules, merge, sorted(arrivals[begin:begin + count]), names,
                                        set(merge.declined) - witnesses.not_declined(merge))
            problems += witnesses.against(merge)
        wrong += [line(f"fragment {merge.fragment} version {merge.version} at ", merge.t, f": {why}")
                  for why in problems]
    wrong += witnesses.dated_back()
    return Finding(not wrong, f"smallest quorum {smallest}", at_least(f"{rules.quorum}, grace as measured"),
                   wrong[:5] or [f"{len(history.merges)} merges recomputed"], figures=violations(wrong))


def _absent(history: History) -> set[int]:
    """Return the numbers of merges with a part of a process that was not connected when the part arrived. What is
    written just before or after a moment may come after or before it."""
    changes: dict[str, list[tuple[float, int | None]]] = defaultdict(list)
    for event in history.tape.of(Hello, Lost, node=COORDINATOR):
        changes[event.learner].append((event.t, event.incarnation if isinstance(event, Hello) else None))
    arrived = history.parts.numbers("arrived")
    processes, process = history.parts.processes
    absent: set[int] = set()
    for number, (learner, incarnation) in enumerate(processes):
        mine = np.flatnonzero(process == number)
        times = [t for t, _ in changes[learner]]
        connected = np.cumsum([0, *(newest == incarnation for _, newest in changes[learner])])
        first = np.maximum(np.searchsorted(times, arrived[mine] - WRITTEN_S, "right") - 1, 0)
        last = np.searchsorted(times, arrived[mine] + WRITTEN_S, "right")
        absent.update(history.parts.merge[mine[connected[last] <= connected[first]]].tolist())
    return absent


def _grace_problems(rules: FragmentRules, merge: Merge, arrivals: list[float], names: set[str],
                    declined: set[str]) -> list[str]:
    if len(arrivals) < rules.quorum:
        return []
    quorum_at = arrivals[rules.quorum - 1]
    slack = rules.overlap * merge.step_time - (quorum_at - merge.opened) - merge.sync_time
    grace = min(max(rules.grace * slack, 0.0), merge.step_time)
    asked = set(merge.asked)
    waited = asked - names - declined
    problems = []
    # Written as "not within", so that a time that is no number is never within.
    if not abs(grace - merge.grace) <= WRITTEN_S:
        problems.append(f"grace was {merge.grace:.4f} s, the recorded times give {grace:.4f} s")
    if waited and not merge.closed >= quorum_at + grace - WRITTEN_S:
        problems.append(f"closed before the grace window was over, without {', '.join(sorted(waited))}")
    if not arrivals[-1] <= merge.closed + WRITTEN_S:
        problems.append("a contribution arrived after the round was closed")
    if not arrivals[-1] <= quorum_at + grace + WRITTEN_S:
        problems.append(f"a contribution arrived {arrivals[-1] - quorum_at - grace:.3f} s after the grace window")
    if names - asked:
        problems.append(f"{', '.join(sorted(names - asked))} was not asked")
    return problems
