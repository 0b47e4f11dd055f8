"""Somebody who has the run's token speaks in a learner's name: what about, and how far it came. A trainer knows how."""

from __future__ import annotations

from typing import Literal, Protocol

Content = Literal["nan", "inf", "shape"]
"""Of an outer gradient."""
About = Literal["step", "tokens", "position", "version"]
"""What a report lies about."""


class Impostor(Protocol):
    """Takes a learner's place at the syncer."""

    sent: int
    """Messages that the syncer has taken."""
