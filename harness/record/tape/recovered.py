"""Merges that the tape of their own process lacks: it was killed between the commit and the event."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from diloco_chaos.harness.record.tape.events import Merge, MergedPart


class RecoveredPart(NamedTuple):
    """What is known of one worker's part in such a merge."""

    learner: str
    incarnation: int
    first: int
    last: int
    digest: str | None = None
    base: int | None = None


class RecoveredMerge(NamedTuple):
    """What the next coordinator recorded of such a merge."""

    t: float
    """When the next coordinator recorded it."""
    inc: int
    """The incarnation of the next coordinator."""
    fragment: int
    version: int
    digest: str
    state: str | None
    outer: tuple[float, float] | None
    contributions: Sequence[RecoveredPart]


Made = Merge | RecoveredMerge
Part = MergedPart | RecoveredPart
