"""How long it takes until a learner has what the syncer sends, measured without a clock that they share.

Learners echo the syncer's own time stamps, and say how long ago they came (as TCP's time stamps do, RFC 7323; the
syncer's clock alone is read at both ends of every interval). A clock's echo gives the way there and back, of which half
is taken for one way; a broadcast's echo, less the way back, gives what its round's merge, commit and transit took.
"""

from __future__ import annotations

from collections.abc import Iterable

from diloco_chaos.harness.trainer.coordinator.moving_average import MovingAverage

Echo = tuple[float, float]
"""(a time that the syncer told, seconds since it came)."""
_LONGER = 0.1
"""Share of the difference by which a longer way than the known one counts: it may have waited behind something."""


class Transit:
    """The measured times of one learner's connection."""

    def __init__(self) -> None:
        self._way: float | None = None
        self._sync_time = MovingAverage()

    @property
    def sync_time(self) -> float | None:
        """Seconds from a round's close to the arrival of its broadcast, on average; None before the first."""
        return self._sync_time.value

    def echoed(self, now: float, clock: Echo | None, broadcasts: Iterable[Echo]) -> None:
        """A report came. An echo from the future is none: its learner's clock has jumped, or it lies."""
        if clock is not None and (way := (now - sum(clock)) / 2) >= 0:
            nearer = self._way is None or way < self._way
            self._way = way if nearer or self._way is None else self._way + _LONGER * (way - self._way)
        for echo in broadcasts:
            if self._way is not None and (took := now - sum(echo) - self._way) > 0:
                self._sync_time.add(took)
