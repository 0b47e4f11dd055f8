"""The clock of a simulated machine, which may jump forward, and its timers; its tape stays in the time of the world."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

from msgspec.structs import replace

from diloco_chaos.harness.record.tape.events import Event, Merge
from diloco_chaos.harness.simulation.world import World


class VirtualClock:
    """See the module."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.ahead = 0.0
        """Seconds that it is ahead of the world."""
        self._jumps: list[tuple[float, float]] = []  # (this clock's time, how much it is ahead from then on)

    def now(self) -> float:
        """Return the time that the clock shows, in seconds."""
        return self._world.now + self.ahead

    def jump(self, seconds: float) -> None:
        """It goes forward."""
        self.ahead += seconds
        self._jumps.append((self.now(), self.ahead))

    def true(self, mine: float) -> float:
        """Return the world's time when the clock showed this one, in seconds; within a jump: when it jumped."""
        latest = float("inf")
        for at, ahead in reversed(self._jumps):
            if mine >= at:
                return min(mine - ahead, latest)
            latest = at - ahead
        return min(mine, latest)

    def in_the_worlds_time(self, event: Event) -> Event:
        """An event, with all times in it as the world had them."""
        if not self._jumps:
            return event
        said = {name: getattr(event, name) for name in event.times}
        event = replace(event, **{name: self.true(t) for name, t in said.items() if t is not None})
        if isinstance(event, Merge):
            event.contributions = [replace(part, arrived=self.true(part.arrived)) for part in event.contributions]
        return event


class Timers:
    """Timers by a machine's clock, one of a key; each fires a little late."""

    def __init__(self, world: World, clock: VirtualClock, late: float, fire: Callable[[str], None]) -> None:
        """`late`: seconds at the most."""
        self._world, self._clock, self._late, self._fire = world, clock, late, fire
        self._set: dict[str, tuple[int, float]] = {}  # key -> (number, when by the clock)
        self._numbers = count(1)

    def set(self, key: str, at: float) -> None:
        """Fire when the clock says so; one of the same key that was set before does not any more."""
        number = next(self._numbers)
        self._set[key] = (number, at)
        late = self._world.near(self._late / 2, self._late / 2)
        self._world.at(at - self._clock.ahead + late, self._is_due, key, number)

    def jumped(self) -> None:
        """The clock did."""
        for key, (_, at) in list(self._set.items()):
            self.set(key, at)

    def _is_due(self, key: str, number: int) -> None:
        known = self._set.get(key)
        if known is not None and known[0] == number:
            del self._set[key]
            self._fire(key)
