"""Pressure on a machine: what is asked of it, and what a node met of it."""

from __future__ import annotations

from typing import Literal, NamedTuple

Resource = Literal["cpu", "memory", "io"]


class Load(NamedTuple):
    """What is to keep a machine busy."""

    resource: Resource
    workers: int = 0
    """Processes that do so; 0: one for each processor."""
    nice: int = 0
    """Their priority, as nice(1) counts it."""
    size: int = 0
    """Bytes of memory that they hold, or of the files that they write, all together; 0: see `share`."""
    share: float = 0.0
    """Of the memory that can be had, in place of `size`."""


class Met(NamedTuple):
    """What a node met while there was pressure, and before."""

    seconds: float
    waited: float
    """Seconds for which that thread of it waited for a processor that waited longest."""
    major_faults: int
    """Pages of it that had to be read from a disk."""

    @property
    def share(self) -> float:
        """Return the share of the time for which it waited."""
        return self.waited / self.seconds if self.seconds else 0.0


class Felt(NamedTuple):
    """What pressure did to one of its targets."""

    did: str
    """What those that made it say that they did."""
    why: str
    """Why there was none; empty: there was."""
    during: Met
    before: Met
