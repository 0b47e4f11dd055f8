"""One line of the tape."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class Event:
    """One line of the tape."""

    t: float
    """Seconds since the run began (CLOCK_MONOTONIC, shared by all processes of one machine)."""
    node: str
    incarnation: int
    event: str
    fields: Mapping[str, Any]

    def __getitem__(self, name: str) -> Any:
        """A field: `event["fragment"]`."""
        return self.fields[name]
