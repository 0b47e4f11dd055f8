"""Merges that the tape of their own process lacks: it was killed between the commit and the event."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from diloco_chaos.harness.record.tape.events import Merge, MergedPart


class RecoveredPart(NamedTuple):
    """One worker's part in such a merge, as far as it is known."""

    learner: str
    incarnation: int
    first: int
    last: int
    digest: str | None = None
    base: int | None = None


class RecoveredMerge(NamedTuple):
    """The record of such a merge by the next coordinator."""

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
