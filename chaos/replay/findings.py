"""What doing a recorded run again has found."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Difference:
    """Where the replay and the tape part."""

    t: float
    """When that was recorded, seconds since the run began."""
    words: str


@dataclass
class Replay:
    """How far it got."""

    versions: int = 0
    steps: int = 0
    difference: Difference | None = None
    """The first one."""
    missing: str = ""
    """What the tape lacks to go on; empty where it was replayed to its end."""
