"""One direction of a link that several connections share, as all that go to one site share the way into it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from typing import Generic, Protocol, TypeVar

from diloco_chaos.harness.simulation.world import World


class Sized(Protocol):
    """The object that a link carries."""

    size: int
    """Bytes."""


Parcel = TypeVar("Parcel", bound=Sized)


class SharedLink(Generic[Parcel]):
    """Whoever has something under way gets an equal part of the rate at any time (processor sharing), which is what
    congestion control comes to for connections with like round trips. What one connection sends keeps its order."""

    def __init__(self, world: World, rate: float) -> None:
        """`rate`: bytes per second, of all together."""
        self._world, self._rate = world, rate
        self._queues: dict[Hashable, deque[tuple[Parcel, Callable[[Parcel], None]]]] = {}
        self._due: dict[Hashable, float] = {}
        """Connection -> how much each must have got until its first parcel is through."""
        self._served, self._since = 0.0, world.now
        """Bytes that each has got who was there all the time; up to when."""
        self._planned = 0

    def carry(self, sender: Hashable, parcel: Parcel, done: Callable[[Parcel], None]) -> None:
        """Call `done(parcel)` when it has come through."""
        self._settle()
        queue = self._queues.setdefault(sender, deque())
        queue.append((parcel, done))
        if len(queue) == 1:
            self._due[sender] = self._served + parcel.size
        self._plan()

    def withdraw(self, sender: Hashable) -> list[Parcel]:
        """Give back what has not come through, in order: something else decides on it now."""
        self._settle()
        self._due.pop(sender, None)
        left = self._queues.pop(sender, deque())
        self._plan()
        return [parcel for parcel, _ in left]

    def bytes_of(self, sender: Hashable) -> int:
        """Return the bytes of a sender that have not come through."""
        return sum(parcel.size for parcel, _ in self._queues.get(sender, ()))

    def seconds(self, size: int) -> float:
        """Return the seconds that so many bytes of one more sender would take, if no sender came or went."""
        return size * (len(self._due) + 1) / self._rate

    def _settle(self) -> None:
        if self._due:
            self._served += (self._world.now - self._since) * self._rate / len(self._due)
        self._since = self._world.now

    def _plan(self) -> None:
        self._planned += 1
        if self._due:
            left = max(0.0, min(self._due.values()) - self._served)
            self._world.after(left * len(self._due) / self._rate, self._through, self._planned)

    def _through(self, planned: int) -> None:
        """The parcel that had least left is through."""
        if planned != self._planned:
            return
        self._settle()
        sender = min(self._due, key=self._due.__getitem__)
        self._served = max(self._served, self._due[sender])
        queue = self._queues[sender]
        parcel, done = queue.popleft()
        if queue:
            self._due[sender] += queue[0][0].size
        else:
            del self._due[sender], self._queues[sender]
        self._plan()
        done(parcel)
