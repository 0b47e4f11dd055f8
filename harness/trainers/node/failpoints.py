"""Named points of the protocol at which a process stands still if it was told so. Pure: whoever asks stops itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from diloco_chaos.harness.record.storage.disk import Content
from diloco_chaos.harness.record.tape.events import Event, Failpoint, FailpointPassed
from diloco_chaos.harness.trainers.core.effects import Save

_PASSED = "passed"
"""How often, in the metadata of a node's part of a checkpoint."""


class Failpoints:
    """Counts how often a node came to each, in all of its processes, from the moment at which it learns of the steady
    state."""

    def __init__(self, wanted: Mapping[str, int], part: Content | None = None,
                 before: Mapping[str, int] | None = None) -> None:
        """`wanted`: point -> stop at its n-th occurrence. `part`: of the checkpoint that this process goes on from; it
        goes on counting, and stops at nothing at which it was not to stop before. `before`: how often the node's
        processes before this one came to each."""
        noted = part.meta.get(_PASSED) if part is not None else None
        self._wanted = wanted if noted is None else {
            point: times for point, times in wanted.items() if point in noted}
        self.passed = Counter(dict.fromkeys(self._wanted, 0) | dict(before or {}) | (noted or {}))

    def due(self, point: str, core: object, record: Callable[[Event], None]) -> bool:
        """It is passed once more, which is recorded as long as there is a stop to come; whether to stop there. `core`
        tells whether it knows of the steady state."""
        if point not in self._wanted or not getattr(core, "steady", False):
            return False
        self.passed[point] += 1
        count, last = self.passed[point], self._wanted[point]
        if count <= last:
            record((Failpoint if count == last else FailpointPassed)(point=point, count=count))
        return count == last

    def noted(self, part: Save) -> Save:
        """A node's part of a checkpoint, with how often each was passed."""
        return part._replace(meta=part.meta | {_PASSED: dict(self.passed)})


def passed(events: Iterable[Event]) -> dict[str, int]:
    """Return failpoint -> how often a node came to it, for those at which it was to stop, by its events."""
    counts: dict[str, int] = {}
    for event in events:
        if isinstance(event, Failpoint | FailpointPassed):
            counts[event.point] = max(counts.get(event.point, 0), event.count or 0)
    return counts
