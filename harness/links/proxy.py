"""A TCP proxy on loopback: a listen address, an upstream, and the toxics of both directions.

Everything here runs in one asyncio loop and needs no locks. Behaviour follows Toxiproxy 2.x, also where that
is not what plain TCP does: once the end of one direction has passed, both are closed. A disabled proxy keeps
its port reserved, so that enabling it can't fail because something else took the port meanwhile. Differences
of single toxics are told where they are defined.
"""

from __future__ import annotations

import asyncio
import random
import socket
import struct
from collections.abc import Iterable
from typing import Any, cast

from diloco_chaos.harness.links.addresses import bound_socket, join_address, listen_address, split_address
from diloco_chaos.harness.links.corruption import Corruption, Corruptions
from diloco_chaos.harness.links.flow import LinkFlow
from diloco_chaos.harness.links.metrics import LinkTraffic, Metrics
from diloco_chaos.harness.links.toxics import STREAMS, ToxicSettings

_BACKLOG = 512
_BREATHER_S = 0.5
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)  # struct linger: discard what is unsent, and send RST instead of FIN


class _Side(asyncio.Protocol):
    """One socket of a connection: passes the transport's events on to the flows out of it and into it."""

    def __init__(self, connection: ProxiedConnection) -> None:
        self._connection = connection
        self.transport: asyncio.Transport | None = None
        self.outgoing: LinkFlow | None = None
        self.incoming: LinkFlow | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self._connection.side_opened(self, self.transport)

    def data_received(self, data: bytes) -> None:
        if self.outgoing is not None:
            self.outgoing.feed(data)

    def eof_received(self) -> bool:
        if self.outgoing is not None:
            self.outgoing.end()
        return True  # keep the transport: the other direction may go on

    def pause_writing(self) -> None:
        if self.incoming is not None:
            self.incoming.block(True)

    def resume_writing(self) -> None:
        if self.incoming is not None:
            self.incoming.block(False)

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        self._connection.side_lost(self)


class ProxiedConnection:
    """An accepted client, its upstream, and the flows between them."""

    def __init__(self, proxy: Proxy, accepted: socket.socket, rng: random.Random) -> None:
        self._proxy = proxy
        self._rng = rng
        self._client = _Side(self)
        self._upstream = _Side(self)
        self._flows: dict[str, LinkFlow] = {}  # by stream; empty until the upstream answered
        self._hit: set[str] = set()  # names of the toxics that toxicity let hit this connection
        self._drawn: dict[tuple[str, float], bool] = {}  # by what several toxics are drawn for together
        self._opening = asyncio.get_running_loop().create_task(self._open(accepted))
        self._opening.add_done_callback(lambda _: self._opened(accepted))

    async def _open(self, accepted: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.connect_accepted_socket(lambda: self._client, accepted)
            host, port = split_address(self._proxy.upstream)
            await loop.create_connection(lambda: self._upstream, host, port)
        except (OSError, ValueError):  # refused, unreachable or no address at all: as if the cable were cut
            self._close()

    def _opened(self, accepted: socket.socket) -> None:
        if self._client.transport is None:  # cancelled before there was one, or lost again
            accepted.close()
            self._proxy.dismiss(self)

    def side_opened(self, side: _Side, transport: asyncio.Transport) -> None:
        """A socket is there: that of the client first, then that of the upstream."""
        client = self._client.transport
        if client is None:
            transport.abort()
        elif side is self._client:
            transport.pause_reading()  # until there is somewhere to send it
        else:
            self._link(client, transport)

    def side_lost(self, side: _Side) -> None:
        """A socket is gone: what it sent still reaches the other one, what was meant for it doesn't."""
        if side.incoming is not None and side.outgoing is not None:
            side.incoming.stop()
            if side.outgoing.over:
                self._close()
            else:
                side.outgoing.end()
        if self._client.transport is None and self._upstream.transport is None:
            self._proxy.dismiss(self)

    def roll(self, toxic: ToxicSettings) -> None:
        """Draw whether `toxic` hits this connection, and apply the outcome."""
        if self._draw(toxic):
            self._hit.add(toxic.name)
        else:
            self._hit.discard(toxic.name)
        self._apply(toxic.stream)

    def _draw(self, toxic: ToxicSettings) -> bool:
        if not toxic.draw:
            return self._rng.random() < toxic.toxicity
        together = (toxic.draw, toxic.toxicity)
        if together not in self._drawn:
            self._drawn[together] = self._rng.random() < toxic.toxicity
        return self._drawn[together]

    def forget(self, toxic: ToxicSettings) -> None:
        """`toxic` was removed."""
        if toxic.draw and all(other.draw != toxic.draw for other in self._proxy.toxics.values()):
            self._drawn = {key: hit for key, hit in self._drawn.items() if key[0] != toxic.draw}
        if toxic.attributes.closes_on_removal:  # also of one that it spared
            self.abort()
        elif toxic.name in self._hit:
            self._hit.discard(toxic.name)
            self._apply(toxic.stream)

    def abort(self) -> None:
        """Drop both sockets with all that is queued."""
        self._opening.cancel()
        for flow in self._flows.values():
            flow.stop()
        for side in (self._client, self._upstream):
            if side.transport is not None:
                side.transport.abort()

    def _link(self, client: asyncio.Transport, upstream: asyncio.Transport) -> None:
        up = self._flow("upstream", client, upstream)
        down = self._flow("downstream", upstream, client)
        self._client.outgoing = self._upstream.incoming = up
        self._client.incoming = self._upstream.outgoing = down
        self._flows = {"upstream": up, "downstream": down}
        if any(toxic.attributes.resets_all for toxic in self._proxy.toxics.values()):
            for transport in (client, upstream):
                transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        for stream in STREAMS:
            self._apply(stream)
        client.resume_reading()

    def _flow(self, stream: str, source: asyncio.Transport, sink: asyncio.Transport) -> LinkFlow:
        return LinkFlow(asyncio.get_running_loop(), source, sink, self._rng, self._proxy.traffic(stream),
                        on_end=lambda: self._flow_ended(stream), on_silence=self.abort, on_reset=self.abort,
                        on_limit=sink.close)

    def _apply(self, stream: str) -> None:
        if stream in self._flows:
            hitting = [t for t in self._proxy.toxics.values() if t.stream == stream and t.name in self._hit]
            self._flows[stream].set_toxics({toxic.name: toxic.attributes for toxic in hitting},
                                           self._proxy.corruptions(hitting))

    def _flow_ended(self, stream: str) -> None:
        if all(flow.over for flow in self._flows.values()):
            self._close()
        else:  # the other direction, whose source this is, ends with it
            self._flows[stream].sink.close()

    def _close(self) -> None:
        """Close both sockets once the data already handed to them is out."""
        for side in (self._client, self._upstream):
            if side.transport is not None:
                side.transport.close()


class Proxy:
    """A named listen address whose connections go to `upstream`, through `toxics`."""

    def __init__(self, name: str, upstream: str, rng: random.Random, metrics: Metrics, also: str = "",
                 corruptions: Corruptions | None = None) -> None:
        """`also`: an IP that it may listen on besides loopback. `corruptions`: the server's; its own if not given."""
        self.name = name
        self._also = also
        self.upstream = upstream
        self.listen = ""
        self._shown = ""  # the listen address as it was asked for, until it listens there
        self.toxics: dict[str, ToxicSettings] = {}  # by name, in the order they were added
        self._rng = rng
        self._metrics = metrics
        self._corruptions = corruptions or Corruptions()
        self._reserved: socket.socket | None = None
        self._listening: socket.socket | None = None
        self._connections: set[ProxiedConnection] = set()

    @property
    def enabled(self) -> bool:
        """Return whether the proxy listens."""
        return self._listening is not None

    def reserve(self, listen: str) -> None:
        """Take the listen address (port 0: a free one), and stop listening at the old one.

        Raises:
            ValueError: the address isn't `host:port`, or not on loopback.
            OSError: it is taken.
        """
        host, port = listen_address(listen, self._also)
        sock = bound_socket(host, port)
        self.close()
        self._reserved = sock
        self.listen = join_address(host, sock.getsockname()[1])
        self._shown = listen if port else self.listen

    def start(self) -> None:
        """Listen; nothing happens where it does already.

        Raises:
            OSError: the address is taken.
        """
        if self._listening is None:
            self._listening = bound_socket(*split_address(self.listen), backlog=_BACKLOG)
            self._shown = self.listen
            self._watch(self._listening)

    def stop(self) -> None:
        """Listen no more and drop all connections; the address stays reserved."""
        if self._listening is not None:
            asyncio.get_running_loop().remove_reader(self._listening)
            self._listening.close()
            self._listening = None
        for connection in list(self._connections):
            connection.abort()

    def close(self) -> None:
        """Stop, and give the address back."""
        self.stop()
        if self._reserved is not None:
            self._reserved.close()
            self._reserved = None

    def dismiss(self, connection: ProxiedConnection) -> None:
        """Called by a connection whose sockets are both closed."""
        self._connections.discard(connection)

    def put_toxic(self, toxic: ToxicSettings) -> None:
        """Add `toxic`, or change the one of its name, on all connections. For the one before a new one they are drawn
        again."""
        before = None if toxic.name in self.toxics else self._drawn_again(toxic.stream)
        self.toxics[toxic.name] = toxic
        for connection in list(self._connections):
            connection.roll(toxic)
            if before is not None:
                connection.roll(before)

    def remove_toxic(self, name: str) -> None:
        """Take the toxic away, on all connections. For the one before it they are drawn again.

        Raises:
            KeyError: there is none of that name.
        """
        before = self._drawn_again(self.toxics[name].stream, name)
        toxic = self.toxics.pop(name)
        for connection in list(self._connections):
            connection.forget(toxic)
            if before is not None:
                connection.roll(before)

    def _drawn_again(self, stream: str, name: str = "") -> ToxicSettings | None:
        """Return the toxic of a direction before this one, or the last one, if chance decides which connections it
        hits. Toxics that are drawn together stay as they are: who is hit by a fault is hit until its end."""
        names = [toxic.name for toxic in self.toxics.values() if toxic.stream == stream]
        before = names[:names.index(name)] if name else names
        toxic = self.toxics[before[-1]] if before else None
        return toxic if toxic is not None and 0 < toxic.toxicity < 1 and not toxic.draw else None

    def traffic(self, stream: str) -> LinkTraffic:
        """The counters of one direction, as long as neither address changes."""
        return self._metrics.traffic(direction=stream, listener=self.listen, proxy=self.name,
                                     upstream=self.upstream)

    def corruptions(self, toxics: Iterable[ToxicSettings]) -> list[Corruption]:
        """Return what those of these toxics do that corrupt."""
        return [each for toxic in toxics if (each := self._corruptions.of(self.name, toxic)) is not None]

    def toxics_json(self) -> list[dict[str, Any]]:
        """The toxics as the HTTP API lists them: those of the upstream direction first."""
        return [t.as_json() for stream in STREAMS for t in self.toxics.values() if t.stream == stream]

    def as_json(self) -> dict[str, Any]:
        """The proxy as the HTTP API shows it."""
        return {"name": self.name, "listen": self._shown, "upstream": self.upstream, "enabled": self.enabled,
                "toxics": self.toxics_json()}

    # asyncio's own servers lose a connection that was accepted just before they are closed: its client hangs.
    def _watch(self, listening: socket.socket) -> None:
        if listening is self._listening:
            asyncio.get_running_loop().add_reader(listening, self._accept, listening)

    def _accept(self, listening: socket.socket) -> None:
        try:
            accepted, _ = listening.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError:  # no file descriptor left: clients wait in the backlog for a while
            loop = asyncio.get_running_loop()
            loop.remove_reader(listening)
            loop.call_later(_BREATHER_S, self._watch, listening)
            return
        accepted.setblocking(False)
        connection = ProxiedConnection(self, accepted, self._rng)
        self._connections.add(connection)
        for toxic in self.toxics.values():
            connection.roll(toxic)
