"""Simulated links: connections with a delay, and the toxics of Toxiproxy, by the arithmetic of the embedded server."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from harness.links.client import Toxic
from harness.links.pace import Pace
from harness.links.toxics import STREAMS, Attributes, ToxicSettings, new_toxic
from harness.simulation.parameters import Parameters
from harness.simulation.world import World
from harness.trainer.messages import AnyMessage
from harness.trainer.tensors import Tensors

_NEVER = float("inf")


class End(Protocol):
    """One who has connections."""

    def arrived(self, connection: Connection, message: AnyMessage, tensors: Tensors) -> None:
        """A whole frame came."""
        ...

    def ended(self, connection: Connection, reason: str) -> None:
        """The other side closed it, or somebody between broke it."""
        ...


@dataclass(slots=True)
class _Parcel:
    """A frame, or the end, on its way."""

    sent: float
    size: int
    end: bool
    action: Callable[..., None]
    arguments: tuple[object, ...]
    counted: int = 0
    """Bytes that a data limit has counted already."""


class Flow:
    """One direction of a connection. What was sent first arrives first, the end last."""

    def __init__(self, world: World, parameters: Parameters, broken: Callable[[str], None]) -> None:
        """`broken(reason)`: a toxic ends the connection."""
        self._world, self._parameters, self._broken = world, parameters, broken
        self._pace: Pace | None = None  # while any toxic hits
        self._queue: deque[_Parcel] = deque()
        self._last = 0.0  # when what was sent before arrives
        self._change = 0  # what was planned before a change of the toxics is planned anew
        self._watched = 0  # silence is counted from the last data
        self._stalled = self._stuck = self._resetting = False
        self._held = False  # something may keep data back, which then has the last part of its way before it
        self.over = False

    def set_toxics(self, toxics: dict[str, Attributes]) -> None:
        """Let these decide on all that has not arrived yet; nothing stops a reset that is under way."""
        if self._resetting or (not toxics and self._pace is None):
            return
        pace = self._pace or Pace(self._world.chance)
        pace.set(toxics, self._world.now)
        self._pace = pace if toxics else None
        if pace.reset_s is not None and self._queue:
            self._await_reset(pace.reset_s)
            return
        if pace.swallows:
            self._queue = deque(parcel for parcel in self._queue if parcel.end)
        self._plan_anew()
        self._watch()

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
        self._add(_Parcel(self._world.now, size, False, action, arguments))

    def end(self, action: Callable[..., None], *arguments: object) -> None:
        """The sender closes: the end arrives behind all data."""
        if self.over or self._resetting:
            return
        if self._pace is not None and self._pace.reset_s is not None:
            self._await_reset(self._pace.reset_s)
            return
        self._add(_Parcel(self._world.now, 0, True, action, arguments))

    def clear(self) -> None:
        """Forget what is on its way."""
        self._queue.clear()
        self._change += 1

    def backlog(self) -> int:
        """Bytes that were sent and are held up."""
        return sum(parcel.size for parcel in self._queue) if self._stalled or self._pace is not None else 0

    def _add(self, parcel: _Parcel) -> None:
        self._queue.append(parcel)
        if not (self._stalled or self._stuck):
            self._plan(parcel)

    def _plan_anew(self) -> None:
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

    def _plan(self, parcel: _Parcel) -> None:
        """When it arrives, as things are now."""
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

    def _through(self, pace: Pace, parcel: _Parcel) -> tuple[float, bool]:
        """When all of it has passed the toxics (infinite for never), and whether a data limit ends the connection."""
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
        parcel.action(*parcel.arguments)


class Connection:
    """From a client through its link to a server."""

    def __init__(self, link: Link, number: int, client: End, server: End) -> None:
        self.link, self.number, self.client, self.server = link, number, client, server
        world, parameters = link.world, link.parameters
        self.up = Flow(world, parameters, self.broken)
        self.down = Flow(world, parameters, self.broken)
        self.client_open = self.server_open = True
        self.drawn: dict[str, bool] = {}
        """Which toxics of less than full toxicity hit it."""
        self.partial: tuple[int, int] | None = None
        """(bytes, bytes of the whole) of a frame to the server that is under way, once its first part has come."""

    def to_server(self, size: int, message: AnyMessage, tensors: Tensors) -> None:
        """The client sends a frame."""
        self.up.carry(size, self._at_server, message, tensors)

    def half_to_server(self, arrived: int, size: int) -> None:
        """The client has sent only so much of a frame."""
        self.up.carry(arrived, self._part_at_server, arrived, size)

    def to_client(self, size: int, message: AnyMessage, tensors: Tensors) -> None:
        """The server sends a frame."""
        self.down.carry(size, self._at_client, message, tensors)

    def close_client(self) -> None:
        """The client closes its side, or its process is gone."""
        if self.client_open:
            self.client_open = False
            self.down.over = True
            self.up.end(self._server_ends, "closed by the peer")
            if not self.server_open:
                self.link.forget(self)

    def close_server(self) -> None:
        """The server closes its side, or its process is gone."""
        if self.server_open:
            self.server_open = False
            self.up.over = True
            self.down.end(self._client_ends, "closed by the syncer")
            if not self.client_open:
                self.link.forget(self)

    def broken(self, reason: str) -> None:
        """Somebody between the two ends it: both are told."""
        self.up.over = True
        if self.link.vanished and self.client_open:  # the client hears of it when it is back
            self._server_ends(reason)
            self.down.clear()
            self.down.end(self._client_ends, "closed by the syncer")
            return
        self.down.over = True
        self.link.forget(self)
        self._server_ends(reason)
        self._client_ends("closed by the syncer" if reason != "reset" else "Connection reset by peer")

    def _at_server(self, message: AnyMessage, tensors: Tensors) -> None:
        self.partial = None
        if self.server_open:
            self.server.arrived(self, message, tensors)

    def _part_at_server(self, arrived: int, size: int) -> None:
        self.partial = (arrived, size)

    def _at_client(self, message: AnyMessage, tensors: Tensors) -> None:
        if self.client_open:
            self.client.arrived(self, message, tensors)

    def _server_ends(self, reason: str) -> None:
        if self.server_open:
            self.server_open = False
            self.up.over = True
            self.server.ended(self, reason)
            if not self.client_open:
                self.link.forget(self)

    def _client_ends(self, reason: str) -> None:
        if self.client_open:
            self.client_open = False
            self.down.over = True
            self.client.ended(self, reason)
            if not self.server_open:
                self.link.forget(self)


class Link:
    """A client's way to the server, with whatever toxics are on it."""

    def __init__(self, name: str, world: World, parameters: Parameters) -> None:
        self.name, self.world, self.parameters = name, world, parameters
        self.enabled = True
        self.vanished = False
        """The client is off the network: nobody hears of it any more."""
        self.toxics: dict[str, tuple[Toxic, ToxicSettings]] = {}
        self._connections: list[Connection] = []

    def connect(self, number: int, client: End, server: End) -> Connection:
        """A new connection, hit by the toxics that hit it."""
        connection = Connection(self, number, client, server)
        self._connections.append(connection)
        if self.toxics:
            self._hit(connection)
        if self.vanished:
            connection.up.stall(True)
            connection.down.stall(True)
        return connection

    def add(self, toxic: Toxic) -> None:
        """Put a toxic on, for all connections."""
        self.toxics[toxic.name] = (toxic, new_toxic(toxic.as_json()))
        for connection in list(self._connections):
            connection.drawn.pop(toxic.name, None)
            self._hit(connection, (toxic.stream,))

    def remove(self, name: str) -> None:
        """Take it off; a connection with a hole in it is closed."""
        if name not in self.toxics:
            return
        _, settings = self.toxics.pop(name)
        for connection in list(self._connections):
            hit = self._hits(settings, connection)
            connection.drawn.pop(name, None)
            self._hit(connection, (settings.stream,))
            if hit and settings.attributes.closes_on_removal:
                connection.broken("closed by the peer")

    def enable(self, enabled: bool) -> None:
        """Down: all connections end, and new ones are refused."""
        self.enabled = enabled
        if not enabled:
            self.break_all()

    def break_all(self) -> None:
        """End all connections."""
        for connection in list(self._connections):
            connection.broken("closed by the peer")

    def vanish(self, vanished: bool) -> None:
        """Lose all packets from now on, or no more."""
        self.vanished = vanished
        for connection in list(self._connections):
            connection.up.stall(vanished)
            connection.down.stall(vanished)

    def forget(self, connection: Connection) -> None:
        """It is over for both sides."""
        if connection in self._connections:
            self._connections.remove(connection)

    def paces(self) -> tuple[Pace, Pace]:
        """What a further connection would be subject to: up, down."""
        up, down = Pace(self.world.chance), Pace(self.world.chance)
        for pace, stream in ((up, "upstream"), (down, "downstream")):
            pace.set({name: settings.attributes for name, (_, settings) in self.toxics.items()
                      if settings.stream == stream and self.world.chance.random() < settings.toxicity}, self.world.now)
        return up, down

    def _hit(self, connection: Connection, streams: tuple[str, ...] = STREAMS) -> None:
        for stream in streams:
            flow = connection.up if stream == "upstream" else connection.down
            flow.set_toxics({name: settings.attributes for name, (_, settings) in self.toxics.items()
                             if settings.stream == stream and self._hits(settings, connection)})

    def _hits(self, settings: ToxicSettings, connection: Connection) -> bool:
        """Whether a toxic hits a connection: drawn once for both."""
        if settings.toxicity >= 1:
            return True
        if settings.name not in connection.drawn:
            connection.drawn[settings.name] = self.world.chance.random() < settings.toxicity
        return connection.drawn[settings.name]


class Network:
    """All links of a cluster; what a cluster asks of its link server, in virtual time."""

    def __init__(self, world: World, parameters: Parameters) -> None:
        self._world, self._parameters = world, parameters
        self.links: dict[str, Link] = {}

    def create(self, name: str) -> Link:
        """A link."""
        return self.links.setdefault(name, Link(name, self._world, self._parameters))

    def add(self, link: str, toxic: Toxic) -> None:
        """Put a toxic on."""
        self.links[link].add(toxic)

    def remove(self, link: str, toxic_name: str) -> None:
        """Take it off."""
        self.links[link].remove(toxic_name)

    def toxics(self, link: str) -> list[Toxic]:
        """What is on."""
        return [toxic for toxic, _ in self.links[link].toxics.values()]

    def set_enabled(self, link: str, enabled: bool) -> None:
        """Take a link down, or bring it up."""
        if self.links[link].enabled != enabled:
            self.links[link].enable(enabled)

    def enabled(self, link: str) -> bool:
        """Whether it is up."""
        return self.links[link].enabled
