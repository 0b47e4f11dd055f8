"""Which batches of the learners' shards were trained on and never merged, fragment by fragment, and why."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

from chaos.history import History
from chaos.tokens import MERGED


@dataclass(frozen=True)
class Unmerged:
    """Batches of one shard that one process trained on, all of the same fate in one fragment."""

    fragment: int
    learner: str
    incarnation: int
    why: str
    tokens: int
    ranges: tuple[tuple[int, int], ...]
    """First and last batch, counted from the shard's beginning, as they were taken."""

    @property
    def batches(self) -> int:
        """How many."""
        return sum(last - first + 1 for first, last in self.ranges)


def unmerged(history: History) -> list[Unmerged]:
    """All of them, by fragment, learner, incarnation and reason. Empty where steps don't tell their batches."""
    return sorted(_unmerged(history), key=lambda one: (one.fragment, one.learner, one.incarnation, one.why))


def _unmerged(history: History) -> Iterator[Unmerged]:
    for (fragment, node), fates in history.ledger.fates.items():
        lost: dict[str, list[tuple[int, int]]] = {}
        for event in history.steps[node]:
            fate = fates.get(event["step"], MERGED)
            if fate != MERGED and "position" in event.fields:
                lost.setdefault(fate, []).append((event["position"], event["tokens"]))
        for why, batches in lost.items():
            yield Unmerged(fragment, *node, why, sum(tokens for _, tokens in batches),
                           tuple(_ranges(sorted(position for position, _ in batches))))


def _ranges(numbers: list[int]) -> Iterator[tuple[int, int]]:
    """Runs of consecutive numbers."""
    for _, run in groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0]):
        members = [number for _, number in run]
        yield members[0], members[-1]
