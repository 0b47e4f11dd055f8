"""What a question through a link comes to; whoever answers knows how to ask it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

PROBE_TIMEOUT_S = 1.0


@dataclass(frozen=True)
class Sounding:
    """The outcome of a question."""

    end: Literal["answered", "refused", "reset", "closed", "silent"]
    """`refused`: no connection; `reset`, `closed`: it ended before the answer was whole; `silent`: nothing came."""
    seconds: float = 0.0
    """From the question to the end, in whatever way it came; the connection is made before."""
    received: int = 0
    """Bytes of the answer that arrived."""
    closing: float | None = None
    """Seconds from the end of our side of the connection to the end of theirs, where that was watched."""

    @property
    def answered(self) -> bool:
        """Return whether the whole answer came."""
        return self.end == "answered"
