"""Simulated links: connections, and the toxics of Toxiproxy that are on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from diloco_chaos.harness.base.tensors import Tensors
from diloco_chaos.harness.links.pace import Pace
from diloco_chaos.harness.links.toxic import Toxic
from diloco_chaos.harness.links.toxics import STREAMS, ToxicSettings, new_toxic
from diloco_chaos.harness.simulation.flow import Parcel, SimulatedFlow
from diloco_chaos.harness.simulation.parameters import Parameters
from diloco_chaos.harness.simulation.shared_link import SharedLink
from diloco_chaos.harness.simulation.world import World
from diloco_chaos.harness.trainers.wire.messages import Message

_RESET = "Connection reset by peer"
Shared = Mapping[str, SharedLink[Parcel]]
"""By direction."""


class Endpoint(Protocol):
    """One who has connections."""

    def arrived(self, connection: SimulatedConnection, message: Message, tensors: Tensors) -> None:
        """A whole frame came."""
        ...

    def ended(self, connection: SimulatedConnection, reason: str) -> None:
        """The other side closed it, or somebody between broke it."""
        ...


class SimulatedConnection:
    """A connection from a client through its link to a server."""

    def __init__(self, link: Link, number: int, client: Endpoint, server: Endpoint) -> None:
        self.link, self.number, self.client, self.server = link, number, client, server
        world, parameters = link.world, link.parameters
        self.up = SimulatedFlow(world, parameters, self.broken)
        self.down = SimulatedFlow(world, parameters, self.broken)
        self.client_open = self.server_open = True
        self.resets = any(settings.attributes.resets_all for _, settings in link.toxics.values())
        """Whatever ends it ends it with a reset: it was made while such a toxic was on."""
        self.drawn: dict[str, bool] = {}
        """Which toxics of less than full toxicity hit it, by their names, or by what several are drawn for together."""
        self.partial: tuple[int, int] | None = None
        """(bytes, bytes of the whole) of a frame to the server that is under way, once its first part has come."""

    def to_server(self, size: int, message: Message, tensors: Tensors) -> None:
        """The client sends a frame."""
        self.up.carry(size, self._at_server, message, tensors)

    def half_to_server(self, arrived: int, size: int) -> None:
        """The client has sent only so much of a frame."""
        self.up.carry(arrived, self._part_at_server, arrived, size)

    def to_client(self, size: int, message: Message, tensors: Tensors) -> None:
        """The server sends a frame."""
        self.down.carry(size, self._at_client, message, tensors)

    def close_client(self) -> None:
        """The client closes its side, or its process is gone."""
        if self.client_open:
            self.client_open = False
            self.down.over = True
            self.up.end(self._server_ends, "reset" if self.resets else "closed by the peer")
            if not self.server_open:
                self.link.forget(self)

    def close_server(self) -> None:
        """The server closes its side, or its process is gone."""
        if self.server_open:
            self.server_open = False
            self.up.over = True
            self.down.end(self._client_ends, _RESET if self.resets else "closed by the syncer")
            if not self.client_open:
                self.link.forget(self)

    def broken(self, reason: str) -> None:
        """Somebody between the two ends it: both are told."""
        if reason == "reset" and not self.resets:
            reason = "closed by the peer"
        self.up.over = True
        if self.link.vanished and self.client_open:  # the client hears of it when it is back
            self._server_ends(reason)
            self.down.clear()
            self.down.end(self._client_ends, "closed by the syncer")
            return
        self.down.over = True
        self.link.forget(self)
        self._server_ends(reason)
        self._client_ends(_RESET if reason == "reset" else "closed by the syncer")

    def _at_server(self, message: Message, tensors: Tensors) -> None:
        self.partial = None
        if self.server_open:
            self.server.arrived(self, message, tensors)

    def _part_at_server(self, arrived: int, size: int) -> None:
        self.partial = (arrived, size)

    def _at_client(self, message: Message, tensors: Tensors) -> None:
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
        self._shared: Shared = {}  # with links of others
        self._connections: list[SimulatedConnection] = []

    def connect(self, number: int, client: Endpoint, server: Endpoint) -> SimulatedConnection:
        """A new connection, hit by the toxics that hit it."""
        connection = SimulatedConnection(self, number, client, server)
        self._connections.append(connection)
        if self._shared:
            self._share(connection)
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
            if not toxic.draw:
                connection.drawn.pop(toxic.name, None)
            self._hit(connection, (toxic.stream,))

    def remove(self, name: str) -> None:
        """Take it off; a connection with a hole in it is closed."""
        if name not in self.toxics:
            return
        _, settings = self.toxics.pop(name)
        for connection in list(self._connections):
            if not any(settings.draw and settings.draw == other.draw for _, other in self.toxics.values()):
                connection.drawn.pop(settings.draw or name, None)
            self._hit(connection, (settings.stream,))
            if settings.attributes.closes_on_removal:  # also one that it spared
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

    def share(self, shared: Shared) -> None:
        """Lead through these links, which others use, too; none: through its own alone."""
        self._shared = shared
        for connection in list(self._connections):
            self._share(connection)

    @property
    def shares(self) -> bool:
        """Return whether the link leads through others, which other connections use, too."""
        return bool(self._shared)

    def shared_s(self, stream: str, size: int) -> float:
        """Seconds that so many bytes more would take there."""
        return self._shared[stream].seconds(size) if stream in self._shared else 0.0

    def forget(self, connection: SimulatedConnection) -> None:
        """It is over for both sides."""
        if connection in self._connections:
            self._connections.remove(connection)
            if self._shared:  # what it had under way takes nothing from the others
                connection.up.clear()
                connection.down.clear()

    def paces(self) -> tuple[Pace, Pace]:
        """Return what a further connection would be subject to: up, down."""
        up, down = Pace(self.world.chance), Pace(self.world.chance)
        drawn: dict[str, bool] = {}
        for pace, stream in ((up, "upstream"), (down, "downstream")):
            pace.set({name: settings.attributes for name, (_, settings) in self.toxics.items()
                      if settings.stream == stream and self._is_drawn(settings, drawn)}, self.world.now)
        return up, down

    def _is_drawn(self, settings: ToxicSettings, drawn: dict[str, bool]) -> bool:
        """Draw whether a toxic hits, unless it is drawn: once for all toxics that are drawn together."""
        key = settings.draw or settings.name
        if key not in drawn:
            drawn[key] = self.world.chance.random() < settings.toxicity
        return drawn[key]

    def _share(self, connection: SimulatedConnection) -> None:
        connection.up.share(self._shared.get("upstream"))
        connection.down.share(self._shared.get("downstream"))

    def _hit(self, connection: SimulatedConnection, streams: tuple[str, ...] = STREAMS) -> None:
        for stream in streams:
            flow = connection.up if stream == "upstream" else connection.down
            flow.set_toxics({name: settings.attributes for name, (_, settings) in self.toxics.items()
                             if settings.stream == stream and self._hits(settings, connection)})

    def _hits(self, settings: ToxicSettings, connection: SimulatedConnection) -> bool:
        """Return whether a toxic hits a connection: drawn once for both."""
        if settings.toxicity >= 1:
            return True
        return self._is_drawn(settings, connection.drawn)


class SimulatedNetwork:
    """The links of a cluster; what a cluster asks of its link server, in virtual time."""

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
        """Return the toxics of a link that are on."""
        return [toxic for toxic, _ in self.links[link].toxics.values()]

    def draws_once(self) -> bool:
        """Return True: toxics that are drawn together hit the same connections."""
        return True

    def set_enabled(self, link: str, enabled: bool) -> None:
        """Take a link down, or bring it up."""
        if self.links[link].enabled != enabled:
            self.links[link].enable(enabled)

    def share(self, links: Sequence[str], rate: float | None, streams: Sequence[str]) -> None:
        """Let these have so many bytes per second together, in each direction; None: no more."""
        shared = {} if rate is None else {stream: SharedLink[Parcel](self._world, rate) for stream in streams}
        for link in links:
            self.links[link].share(shared)

    def enabled(self, link: str) -> bool:
        """Return whether a link is up."""
        return self.links[link].enabled
