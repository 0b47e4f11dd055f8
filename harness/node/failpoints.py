"""Named points of the protocol at which a process stands still if it was told so. Pure: whoever asks stops itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from harness.core.effects import Save
from harness.storage.disk import Content

_PASSED = "passed"
"""How often, in the metadata of a node's part of a checkpoint."""


class Failpoints:
    """Counts how often each was passed, from the moment at which the node learns of the steady state."""

    def __init__(self, wanted: Mapping[str, int], part: Content | None = None) -> None:
        """`wanted`: point -> stop at its n-th occurrence. `part`: of the checkpoint that this process goes on from; it
        goes on counting, and stops at nothing at which it was not to stop before."""
        before = part.meta.get(_PASSED) if part is not None else None
        self._wanted = wanted if before is None else {
            point: times for point, times in wanted.items() if point in before}
        self.passed = Counter(dict.fromkeys(self._wanted, 0) | (before or {}))

    def due(self, point: str, core: object) -> bool:
        """It is passed once more; whether to stop there. `core` tells whether it knows of the steady state."""
        if point not in self._wanted or not getattr(core, "steady", False):
            return False
        self.passed[point] += 1
        return self.passed[point] == self._wanted[point]

    def noted(self, part: Save) -> Save:
        """A node's part of a checkpoint, with how often each was passed."""
        return part._replace(meta=part.meta | {_PASSED: dict(self.passed)})
