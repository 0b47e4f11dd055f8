"""What a worker tells of a round that it has finished, and what a log as a whole tells."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

Named: TypeAlias = tuple[tuple[int, int], ...]
"""Numbers of data: first and last of each run of them."""


class RoundReport(NamedTuple):
    """A round that a worker says it has finished."""

    round: int
    loss: float | None = None
    samples: int | None = None
    members: int | None = None
    """How many workers took part, by its own word."""
    time: float | None = None
    """When, in seconds since 1970, by its own clock."""
    epoch: float | None = None
    """Of which the round is told: rounds begin again with each."""
    batches: Named | None = None
    """The batches that it took, where they are named."""
    named_samples: Named | None = None
    """The samples that it took, where they are named."""
    digest: str | None = None
    """Of its weights after the round."""
    rank: str | None = None
    """Which rank, or actor, of the node it is of."""


class Lint(NamedTuple):
    """The reports that were found in a log, and what is wrong with it."""

    reports: Sequence[RoundReport]
    lines: int
    problems: Sequence[str]
    notes: Sequence[str] = ()
    """What is worth knowing, and nothing is wrong with."""
