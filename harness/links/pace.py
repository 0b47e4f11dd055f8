"""The arithmetic of when the bytes that toxics touch may go on."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping

from diloco_chaos.harness.links.toxics import DELAYED_WINDOW, PLAIN_WINDOW, Attributes

_SLICE_S = 0.1  # a slow link hands over what it carries every 100 ms, not when a large chunk is complete
_PIECE = 32 * 1024  # what a faster one hands over at once: as Toxiproxy reads
_TIMER_S = 0.005  # a rate is kept over this time: a timer comes a millisecond late
_CATCH_UP_S = 0.1  # how much lateness (a timer's, a stalled receiver's) a rate limit or slicer makes up for


class Pace:
    """The moments at which the bytes of one direction of one connection may go on, given the toxics that hit it.

    Times are seconds of the caller's monotonic clock, which is never read here. Delays add up, the lowest
    rate, the smallest slice and the longest gap win: the order in which toxics were added makes no difference.
    """

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._toxics: tuple[Attributes, ...] = ()
        self._untouched = True
        self._free_at = -math.inf  # when the rate limit has carried all that was asked of it, and the gap is over
        self._rate = math.inf
        self._gap_s = 0.0
        self._carried = 0
        self._came_at: dict[str, int] = {}  # what had been carried when a toxic came, by its name
        self._limit = math.inf  # for what is carried
        self.window_bytes = PLAIN_WINDOW
        self.swallows = False
        self.silence_s: float | None = None
        self.reset_s: float | None = None
        self.end_delay_s = 0.0

    def set(self, toxics: Mapping[str, Attributes], now: float) -> None:
        """Take `toxics` (by name) for all data that hasn't gone on by `now`; an old rate limit is forgotten.

        What a data limit has counted stays with the toxic's name for as long as that is among them.
        """
        self._toxics = tuple(toxics.values())
        self._untouched = not any(toxic.touches_data for toxic in self._toxics)
        self._free_at = now
        self._rate = min((toxic.bytes_per_s() for toxic in self._toxics), default=math.inf)
        self._gap_s = max((toxic.gap_s() for toxic in self._toxics), default=0.0)
        self._came_at = {name: self._came_at.get(name, self._carried) for name in toxics}
        self._limit = min((self._came_at[name] + toxic.limit_bytes() for name, toxic in toxics.items()),
                          default=math.inf)
        widest = max((toxic.window_bytes for toxic in self._toxics), default=PLAIN_WINDOW)
        self.window_bytes = widest if math.isinf(self._rate) else max(
            widest, int(min(self._rate * _TIMER_S, DELAYED_WINDOW)))
        self.swallows = any(toxic.swallows for toxic in self._toxics)
        self.silence_s = _soonest(toxic.silence_s() for toxic in self._toxics)
        self.reset_s = _soonest(toxic.reset_s() for toxic in self._toxics)
        self.end_delay_s = sum(toxic.end_delay_s() for toxic in self._toxics)

    @property
    def untouched(self) -> bool:
        """True where no toxic that touches data hits: it may go on as it comes."""
        return self._untouched

    @property
    def exhausted(self) -> bool:
        """True where a data limit lets no byte on any more."""
        return self._carried >= self._limit

    def slice(self, available: int) -> int:
        """Return how many of a chunk's `available` bytes go on next, at once; none where a data limit is exhausted.

        Draws the slices' variation, so ask once per slice.
        """
        trickle = math.inf if math.isinf(self._rate) else min(max(1, self._rate * _SLICE_S), _PIECE)
        sizes = (toxic.slice_bytes(self._rng) for toxic in self._toxics)
        return int(min(available, trickle, max(0, self._limit - self._carried), *sizes))

    def ready_at(self, arrival: float) -> float:
        """Return when a chunk that came at `arrival` has been delayed; draws the jitter, so ask once per chunk."""
        return arrival + sum(toxic.delay_s(self._rng) for toxic in self._toxics)

    def release_at(self, ready: float, size: int, now: float) -> float:
        """Return when `size` bytes that are ready at `ready` have passed the rate limit and the gap before them."""
        if math.isinf(self._rate) and not self._gap_s:
            return ready
        if self._rate == 0:
            return math.inf
        released = max(ready, self._free_at, now - _CATCH_UP_S) + size / self._rate
        self._free_at = released + self._gap_s
        return released

    def carry(self, size: int) -> None:
        """Count `size` bytes that have gone on."""
        self._carried += size


def _soonest(times: Iterable[float | None]) -> float | None:
    return min((time for time in times if time is not None), default=None)
