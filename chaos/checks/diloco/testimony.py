"""Counts that the syncer tells of the whole run, held against what the learners did: where the global clock stands, and
how many tokens are in the model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise

from diloco_chaos.chaos.checks.base import rules_of, zero
from diloco_chaos.chaos.evidence.availability import SETTLED_S, Availability
from diloco_chaos.chaos.evidence.history import History
from diloco_chaos.chaos.scenario.model import COORDINATOR
from diloco_chaos.harness.base.lines import Line, line
from diloco_chaos.harness.base.tensors import np
from diloco_chaos.harness.record.tape.events import Initial, Merge

_SLOWER = 0.1
"""Share by which the global clock may be slower than the learner that drives it: places that change cost some steps."""
_TOLD_LATE = 3
"""Steps that the syncer may not have heard of yet."""
_ROUNDED = 1.0
"""Two counts of tokens that are each rounded differ by no more than this from what lies between them."""


def slow_clock(history: History) -> list[Line]:
    """Name each time, while no node was hit, in which the global clock went ahead by fewer steps than the learner made
    that drives it: the K-th quickest."""
    rules, merges = rules_of(history), history.merges
    if history.zero is None:
        return []
    wrong = []
    for before, after in _quiet(history, [merge for merge in merges if merge.t >= zero(history)]):
        own: Counter[str] = Counter(dict.fromkeys(history.plan.cluster.names, 0))
        for (name, _), steps in history.steps.items():
            first, last = np.searchsorted(np.sort(steps.t), [before.t, after.t], "right")
            own[name] += int(last - first)
        driving = sorted(own.values(), reverse=True)[rules.quorum - 1]
        least = (1 - _SLOWER) * driving - rules.steps_behind - _TOLD_LATE
        if not after.step - before.step >= least:
            wrong.append(line("between ", before.t, " and ", after.t, f" the global clock is said to have made "
                              f"{after.step - before.step} steps, and the learner that drives it made {driving}"))
    return wrong


def _quiet(history: History, merges: Sequence[Merge]) -> Iterator[tuple[Merge, Merge]]:
    """Yield the first and the last merge of each time in which no node was out."""
    out = sorted((gone, back + SETTLED_S) for intervals in history.once(Availability).out.values()
                 for gone, back in intervals)
    times = np.asarray([merge.t for merge in merges], float)
    quiet_since = -np.inf
    for gone, back in [*out, (np.inf, np.inf)]:
        first, end = np.searchsorted(times, [quiet_since, gone], "left")
        if end - first > 1:
            yield merges[first], merges[end - 1]
        quiet_since = max(quiet_since, back)


def miscounted(history: History) -> list[Line]:
    """Name the merges after which the syncer says of more, or fewer, tokens that they are in the model than were merged
    since the one before; nothing where a merge is missing on the tape."""
    sizes, merges = rules_of(history).sizes, history.merges
    if not sizes or history.recovered_merges or not _all_there(history):
        return []
    parts = history.parts
    tokens = np.bincount(parts.merge, parts.integers("tokens"), len(merges))
    more = np.asarray([sizes[merge.fragment] for merge in merges], float) / sum(sizes) * tokens
    said = np.asarray([rules_of(history).begins_with, *(merge.merged for merge in merges)], float)
    differ = np.flatnonzero(~(np.abs(np.diff(said) - more) <= _ROUNDED))
    return [line("at ", merges[place].t, f" {said[place + 1]:,.0f} tokens were said to be in the model, "
                 f"{said[place]:,.0f} before, and {more[place]:,.0f} were merged") for place in differ.tolist()]


def _all_there(history: History) -> bool:
    """Return whether the tape has each version of every fragment, from the first one on, in order."""
    initial = history.tape.of(Initial, node=COORDINATOR)
    if not initial or any(initial[0].versions):
        return False
    versions: dict[int, list[int]] = {fragment: [0] for fragment in range(len(initial[0].versions))}
    for merge in history.merges:
        versions.setdefault(merge.fragment, [0]).append(merge.version)
    return all(later - earlier == 1 for own in versions.values() for earlier, later in pairwise(own))
