"""Named points of the protocol at which a process stands still if it was told so. Pure: whoever asks stops itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping


class HoldPoints:
    """Counts how often each was passed, from the moment at which the node learns of the steady state."""

    def __init__(self, wanted: Mapping[str, int]) -> None:
        """`wanted`: point -> stop at its n-th occurrence."""
        self._wanted = wanted
        self.passed = Counter[str]()

    def due(self, point: str, core: object) -> bool:
        """It is passed once more; whether to stop there. `core` tells whether it knows of the steady state."""
        if point not in self._wanted or not getattr(core, "steady", False):
            return False
        self.passed[point] += 1
        return self.passed[point] == self._wanted[point]
