"""Which batches of the learners' shards were leased and never merged, fragment by fragment, and why."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby, pairwise

from diloco_chaos.chaos.evidence.accounting.token_accounting import MERGED, Node
from diloco_chaos.chaos.evidence.history import History
from diloco_chaos.harness.record.tape.events import Ready

SKIPPED = "skipped"
"""No process trained on it as far as is known: a process that was not heard of any more may have, and its successor
began behind all that it can have come to."""


@dataclass(frozen=True)
class Unmerged:
    """Batches of one shard that one process was to train on, all of the same fate in one fragment."""

    fragment: int
    learner: str
    incarnation: int
    why: str
    tokens: int
    ranges: tuple[tuple[int, int], ...]
    """First and last batch, counted from the shard's beginning, as they were taken."""

    @property
    def batches(self) -> int:
        """Return how many batches these are."""
        return sum(last - first + 1 for first, last in self.ranges)


def unmerged(history: History) -> list[Unmerged]:
    """Return all unmerged steps, sorted by fragment, learner, incarnation and reason; empty where steps don't record
    their batches."""
    return sorted([*_lost(history), *_skipped(history)],
                  key=lambda entry: (entry.fragment, entry.learner, entry.incarnation, entry.why))


def _lost(history: History) -> Iterator[Unmerged]:
    """Yield the batches that a process trained on. What data parallelism took back and did again was merged in the
    end."""
    merged: dict[tuple[int, str], set[int]] = defaultdict(set)
    lost: dict[tuple[int, Node, str], dict[int, int]] = defaultdict(dict)
    for (fragment, node), fates in history.accounting.fates.items():
        for event in history.steps[node]:
            if event.position is not None:
                fate = fates.get(event.step, MERGED)
                if fate == MERGED:
                    merged[fragment, node[0]].add(event.position)
                else:
                    lost[fragment, node, fate][event.position] = event.tokens
    for (fragment, node, why), tokens in lost.items():
        never = sorted(tokens.keys() - merged[fragment, node[0]])
        if never:
            yield Unmerged(fragment, *node, why, sum(tokens[position] for position in never), tuple(_ranges(never)))


def _skipped(history: History) -> Iterator[Unmerged]:
    """Yield the batches between where one process of a learner had come to and where the next one began."""
    cluster = history.plan.cluster
    if not cluster.exchanges_fragments:  # there every process begins where the group is
        return
    for name in cluster.names:
        taken = {event.position for (node, _), events in history.steps.items() if node == name
                 for event in events if event.position is not None}
        begins = [(0, cluster.first_position), *sorted((ready.inc, ready.position)
                                                       for ready in history.tape.of(Ready, node=name)
                                                       if ready.position is not None)]
        for (incarnation, begin), (_, end) in pairwise(begins):
            never = sorted(set(range(begin, end)) - taken)
            for fragment in range(len(cluster.fragment_table())) if never else ():
                yield Unmerged(fragment, name, incarnation, SKIPPED, len(never) * cluster.tokens_per_step_of(name),
                               tuple(_ranges(never)))


def _ranges(numbers: list[int]) -> Iterator[tuple[int, int]]:
    """Runs of consecutive numbers."""
    for _, run in groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0]):
        members = [number for _, number in run]
        yield members[0], members[-1]
