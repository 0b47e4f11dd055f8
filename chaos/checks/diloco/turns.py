"""Is every fragment merged in its turn?"""

from __future__ import annotations

import math
from itertools import pairwise

from diloco_chaos.chaos.checks.base import Figure, Finding, Late, at_most, check, rules_of, zero
from diloco_chaos.chaos.evidence.availability import Availability
from diloco_chaos.chaos.evidence.history import History
from diloco_chaos.chaos.scenario.model import COORDINATOR
from diloco_chaos.harness.base.lines import Line, line, text
from diloco_chaos.harness.record.tape.events import Finished, Merge, Steady


@check(needs={"fragments"}, unverified="judged")
def fragments_in_turn(history: History) -> Finding | None:
    """Every fragment is merged once in H steps of the global clock, to the end of training, while neither the syncer is
    hit nor so many learners that those left are no quorum."""
    start, turn = zero(history), rules_of(history).turn
    finished = [event for event in history.tape.of(Finished, node=COORDINATOR)[:1] if event.t <= history.end]
    availability = history.once(Availability)
    longest, judged, wrong = 0, 0, list[tuple[int, Line, Late]]()
    step_s = min(map(history.plan.cluster.quickest_step, history.plan.cluster.names))
    for fragment in range(len(history.plan.cluster.fragment_table())):
        mine = [merge for merge in history.merges if merge.fragment == fragment and merge.t >= start]
        ends: list[Steady | Merge | Finished] = [*history.tape.of(Steady, node=COORDINATOR)[:1], *mine, *finished]
        for before, after in pairwise(ends):
            if not availability.goes_on(before.t, after.t):
                continue
            # A syncer that stood still hears of many steps at once, and its clock runs ahead of all learners.
            up = history.seconds(before.t, after.t)
            steps = min(after.step - before.step, math.ceil(up / step_s))
            longest, judged = max(longest, steps), judged + 1
            if steps > turn:
                wrong.append((steps, line(f"fragment {fragment} was not merged between ", before.t, " and ", after.t,
                                          f", in {steps} steps"),
                              Late(before.t, after.t, turn * step_s + after.t - before.t - up)))
    if not judged:
        return None  # too much was hit all the time
    wrong.sort(key=lambda entry: (entry[0], text(entry[1])), reverse=True)
    return Finding(not wrong, f"longest {longest} steps", at_most(f"{turn:g} steps"),
                   [words for _, words, _ in wrong[:3]], [late for _, _, late in wrong],
                   [Figure(value=longest, limit=turn, unit="steps")])
