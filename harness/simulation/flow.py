"""One direction of a simulated connection: a delay, and toxics, by the arithmetic of the embedded Toxiproxy."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from diloco_chaos.harness.links.pace import Pace
from diloco_chaos.harness.links.probe import PROBE_TIMEOUT_S
from diloco_chaos.harness.links.toxics import Attributes
from diloco_chaos.harness.simulation.parameters import Parameters
from diloco_chaos.harness.simulation.shared_link import SharedLink
from diloco_chaos.harness.simulation.world import World

_NEVER = float("inf")


@dataclass(slots=True)
class Parcel:
    """A frame, or the end, on its way."""

    sent: float
    size: int
    end: bool
    action: Callable[..., None]
    arguments: tuple[object, ...]
    counted: int = 0
    """Bytes that a data limit has counted already."""


class SimulatedFlow:
    """One direction of a connection. What was sent first arrives first, the end last."""

    def __init__(self, world: World, parameters: Parameters, broken: Callable[[str], None]) -> None:
        """`broken(reason)`: a toxic ends the connection."""
        self._world, self._parameters, self._broken = world, parameters, broken
        self._pace: Pace | None = None  # while any toxic hits
        self._queue: deque[Parcel] = deque()
        self._last = 0.0  # when what was sent before arrives
        self._change = 0  # what was planned before a change of the toxics is planned anew
        self._watched = 0  # silence is counted from the last data
        self._stalled = self._stuck = self._resetting = False
        self._held = False  # something may keep data back, which then has the last part of its way before it
        self._shared: SharedLink[Parcel] | None = None
        self.over = False

    def set_toxics(self, toxics: dict[str, Attributes]) -> None:
        """Let these decide on all that has not arrived yet; nothing stops a reset that is under way."""
        if self._resetting or (not toxics and self._pace is None):
            return
        pace = self._pace or Pace(self._world.chance)
        pace.set(toxics, self._world.now)
        self._pace = pace if toxics else None
        self._withdraw()
        if pace.reset_s is not None and self._queue:
            self._await_reset(pace.reset_s)
            return
        if pace.swallows:
            self._queue = deque(parcel for parcel in self._queue if parcel.end)
        self._plan_anew()
        self._watch()

    def share(self, link: SharedLink[Parcel] | None) -> None:
        """What has its delay behind it goes through this link, which others use, too; None: through none."""
        self._withdraw()
        self._shared = link
        self._plan_anew()

    def stall(self, stalled: bool) -> None:
        """Packets are lost, and nobody is told: they are sent again until they come through."""
        self._stalled = stalled
        self._plan_anew()

    def carry(self, size: int, action: Callable[..., None], *arguments: object) -> None:
        """Call `action` when `size` bytes sent now have arrived, unless something on the way ends them."""
        if self.over or self._resetting:
            return
        pace = self._pace
        if pace is not None:
            if pace.reset_s is not None:
                self._await_reset(pace.reset_s)
                return
            if pace.swallows:
                self._watch()
                return
        self._add(Parcel(self._world.now, size, False, action, arguments))

    def end(self, action: Callable[..., None], *arguments: object) -> None:
        """The sender closes: the end arrives behind all data."""
        if self.over or self._resetting:
            return
        if self._pace is not None and self._pace.reset_s is not None:
            self._await_reset(self._pace.reset_s)
            return
        self._add(Parcel(self._world.now, 0, True, action, arguments))

    def clear(self) -> None:
        """Forget what is on its way."""
        self._withdraw()
        self._queue.clear()
        self._change += 1

    def backlog(self) -> int:
        """Bytes that were sent and are held up."""
        held = sum(parcel.size for parcel in self._queue) if self._stalled or self._pace is not None else 0
        return held + (self._shared.bytes_of(self) if self._shared is not None else 0)

    def _add(self, parcel: Parcel) -> None:
        self._queue.append(parcel)
        if not (self._stalled or self._stuck):
            self._plan(parcel)

    def _withdraw(self) -> None:
        """What a shared link has not let through is decided on anew, too."""
        if self._shared is not None:
            self._queue.extendleft(reversed(self._shared.withdraw(self)))

    def _plan_anew(self) -> None:
        self._withdraw()
        self._change += 1
        held = self._held
        self._last, self._stuck = self._world.now + (self._parameters.delay if held else 0.0), False
        self._held = self._stalled or self._pace is not None
        if self._stalled:
            return
        for parcel in self._queue:
            if self._pace is not None:
                self._pace.carry(-parcel.counted)
            parcel.counted = 0
        for parcel in list(self._queue):
            if not self._stuck:
                self._plan(parcel)

    def _plan(self, parcel: Parcel) -> None:
        """Decide when a parcel arrives, as things are now."""
        at, over = parcel.sent, False
        if self._pace is not None:
            if parcel.end:
                at = max(at, self._last) + self._pace.end_delay_s
            else:
                at, over = self._through(self._pace, parcel)
        if at == _NEVER:
            self._stuck = True
            return
        at += self._world.near(self._parameters.delay, self._parameters.jitter)
        if at < self._last:
            at = self._last
        self._last = at
        if parcel.end or parcel.counted == parcel.size or self._pace is None:
            self._world.at(at, self._arrive, self._change)
        if over:
            self._stuck = True
            self._world.at(at, self._limit_reached, self._change)

    def _through(self, pace: Pace, parcel: Parcel) -> tuple[float, bool]:
        """Return when all of a parcel has passed the toxics (infinite for never), and whether a data limit ends the
        connection."""
        now = self._world.now
        at, left = pace.ready_at(parcel.sent), parcel.size
        while left > 0 and not pace.exhausted:
            part = pace.slice(left)
            at = pace.release_at(at, part, now)
            if at == _NEVER:
                return at, False
            pace.carry(part)
            parcel.counted += part
            left -= part
        return at, pace.exhausted

    def _limit_reached(self, change: int) -> None:
        if change == self._change and not self.over:
            self._broken("closed by the syncer")

    def _await_reset(self, seconds: float) -> None:
        if not self._resetting:
            self._resetting = True
            self.clear()
            self._world.after(seconds, self._broken, "reset")

    def _watch(self) -> None:
        """Close once nothing came for as long as a toxic waits."""
        self._watched += 1
        if self._pace is not None and self._pace.silence_s is not None:
            self._world.after(self._pace.silence_s, self._silent, self._watched)

    def _silent(self, watched: int) -> None:
        if watched == self._watched and not self.over:
            self._broken("closed by the syncer")

    def _arrive(self, change: int) -> None:
        if change != self._change or self.over:
            return
        parcel = self._queue.popleft()
        if self._shared is not None:
            self._shared.carry(self, parcel, self._came_through)
        else:
            parcel.action(*parcel.arguments)

    def _came_through(self, parcel: Parcel) -> None:
        """Deliver a parcel that has come through a shared link."""
        if not self.over:
            parcel.action(*parcel.arguments)


def passage(pace: Pace, size: int, now: float) -> tuple[float, int, Literal["answered", "reset", "closed", "silent"]]:
    """Seconds until so many bytes have passed these toxics, how many did, and how that ends; `silent`: nothing comes
    for longer than anybody waits."""
    if pace.reset_s is not None:
        return pace.reset_s, 0, "reset"
    if pace.swallows:
        return (pace.silence_s, 0, "closed") if pace.silence_s is not None else (0.0, 0, "silent")
    at, left, last = pace.ready_at(now), size, now
    while left > 0 and not pace.exhausted:
        part = pace.slice(left)
        at = pace.release_at(at, part, now)
        if at - last > PROBE_TIMEOUT_S:
            return PROBE_TIMEOUT_S, size - left, "silent"
        pace.carry(part)
        left, last = left - part, at
    return at - now, size - left, "closed" if pace.exhausted else "answered"
