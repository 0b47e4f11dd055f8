"""How far another machine's clock is ahead of this one's, and how well that is known: an exchange of time stamps as in
NTP (RFC 5905, section 8), of which the quickest are believed.

Whatever the way there and back took, the other clock was read between them: half of the round trip is the most by which
the estimate can be wrong.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass

from diloco_chaos.harness.places.base import ClusterError
from diloco_chaos.harness.places.remote.watching import Watching

_REMEMBERED = 16
_DRIFT = 1e-4
"""Seconds per second that clocks of two machines may drift apart: far more than quartz does."""
_EVERY_S, _EXCHANGES = 1.0, 3


@dataclass(frozen=True)
class Reading:
    """One exchange's result: how two machines' clocks differ."""

    at: float
    """This machine's clock in the middle of it, seconds."""
    ahead: float
    """Seconds by which the other clock is ahead."""
    error: float
    """Seconds by which that can be wrong."""

    @classmethod
    def of(cls, asked: float, remote: float, answered: float) -> Reading:
        """Return what one exchange says of the clocks, in seconds. `asked`, `answered`: this machine's clock before and
        after; `remote`: the other machine's clock in between."""
        middle = (asked + answered) / 2
        return cls(middle, remote - middle, (answered - asked) / 2)


class RemoteClock:
    """Another machine's clock, by the last exchanges with it."""

    def __init__(self) -> None:
        self._readings: deque[Reading] = deque(maxlen=_REMEMBERED)

    def add(self, reading: Reading) -> None:
        """Add one more reading."""
        self._readings.append(reading)

    def best(self, now: float) -> Reading:
        """Return the most exact of the last readings, as of `now`: the older one is, the more drift adds to its error.

        Raises:
            ValueError: there was no reading yet.
        """
        return min((Reading(now, reading.ahead, reading.error + _DRIFT * (now - reading.at))
                    for reading in tuple(self._readings)), key=lambda reading: reading.error)


class Comparing(Watching):
    """Compares clocks all through a run, beside everything else."""

    def __init__(self, looks: Callable[[], Iterable[Callable[[], None]]]) -> None:
        """`looks`: one for each clock that can be asked now; each asks it once."""
        super().__init__("clocks", _EVERY_S, ClusterError)
        self._looks = looks
        self.start()

    def look(self) -> None:
        """Some exchanges with each: who is gone, or whose connection is lost, hinders no other."""
        for look in self._looks():
            with suppress(ClusterError):  # what was known grows old
                for _ in range(_EXCHANGES):
                    look()
            if self._over.is_set():
                return
