"""A run's links on any place: each leads from a node to another, or to the echo that stands beside that one, and bears
what faults do to it.

A link has sides at the link server, which all get the same toxics: its own; where nodes are commands, that of an echo
of ours, which answers questions about the link, since what stands behind it speaks a language of its own; and one for
every connection that was caught.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Any, Protocol

from diloco_chaos.harness.links.addresses import join_address
from diloco_chaos.harness.links.toxic import Toxic
from diloco_chaos.harness.places.links.undos import Enable, Toxin
from diloco_chaos.harness.places.nodes.nodes import Nodes
from diloco_chaos.harness.places.sockets import connections
from diloco_chaos.harness.record.undo_log import OpenUndos, UndoLog

ECHO = ":echo"
"""What the name of a link's echo ends with."""


class LinkControl(Protocol):
    """A link server, as a run asks for changes; `diloco_chaos.harness.links.client.Links` for one."""

    def add(self, link: str, toxic: Toxic) -> None:
        """Put a toxic on."""
        ...

    def remove(self, link: str, toxic_name: str) -> None:
        """Take it off."""
        ...

    def toxics(self, link: str) -> list[Toxic]:
        """Return the toxics that are on a link."""
        ...

    def set_enabled(self, link: str, enabled: bool) -> None:
        """Take a link down, or bring it up."""
        ...

    def enabled(self, link: str) -> bool:
        """Return whether a link is up."""
        ...

    def draws_once(self) -> bool:
        """Return whether toxics that are drawn together hit the same connections."""
        ...


class ProxyServer(Protocol):
    """The server of a run's links, at one place."""

    @property
    def control(self) -> LinkControl:
        """Return the client that changes links.

        Raises:
            ClusterError: it is not up.
        """
        ...

    @property
    def pid(self) -> int:
        """A process on its network; 0: none of this machine's."""
        ...

    def make(self, side: str, upstream: str, enabled: bool) -> str:
        """Make one side of a link; host:port where nodes find it."""
        ...

    def asked_at(self, address: str) -> str:
        """Return where the harness finds a side that nodes find at this address."""
        ...

    def carried(self) -> Mapping[str, int] | None:
        """Side -> the bytes that it has taken from both ends since it was made; None: not known."""
        ...

    def undone_by(self) -> Mapping[str, Any] | None:
        """Return the fields by which an undo of what is on a link finds this server once the harness is dead; None: the
        server is gone by then."""
        ...


class RunLinks:
    """See the module. Calls may come from any thread: connections are caught in threads of their own."""

    def __init__(self, server: ProxyServer, nodes: Nodes[Any], undo_log: UndoLog) -> None:
        self.addresses: dict[str, str] = {}
        """Link -> where the node's side of it listens."""
        self.lock = threading.RLock()
        self._server, self._nodes, self._undos = server, nodes, OpenUndos(undo_log)
        self._echoes: dict[str, str] = {}  # link -> where its echo is asked
        self._sides: dict[str, list[str]] = {}  # link -> its sides, by the server's names for them
        self._upstreams: dict[str, str] = {}  # side -> what is behind it
        self._sides_at: dict[str, str] = {}  # side -> where nodes find it
        self._toxics: dict[str, dict[str, Toxic]] = {}
        self._disabled: set[str] = set()

    # -- making them ---------------------------------------------------------------------------------------------------

    def make(self, link: str, upstream: str) -> None:
        """A link of a node of ours."""
        self.addresses[link] = self._make_side(link, link, upstream)

    def make_of_command(self, link: str, upstream: str, echo: str) -> None:
        """A link of a command. `upstream`: empty, where only what is caught goes through it."""
        self._echoes[link] = self.addresses[link] = self._make_side(link, f"{link}{ECHO}", echo)
        if upstream:
            self.addresses[link] = self._make_side(link, link, upstream)

    def catch(self, link: str, host: str, port: int) -> str:
        """One more side of a link, which leads there, with all that is on the link now; where nodes find it."""
        side, like = f"{link}:{host}:{port}", f"{link}{ECHO}"
        if side not in self._sides_at:
            if like in self._disabled:
                self._disable(side)
            self._make_side(link, side, join_address(host, port))
            for toxic in self._toxics.get(like, {}).values():
                self._put(side, toxic)
        return self._sides_at[side]

    def make_again(self) -> None:
        """Make the same sides again, with the same toxics, after the server was restarted."""
        for side, upstream in self._upstreams.items():
            self._server.make(side, upstream, side not in self._disabled)
            for toxic in self._toxics.get(side, {}).values():
                self._server.control.add(side, toxic)

    def close(self) -> None:
        """The server has ended: nothing is owed to its links any more."""
        self._undos.complete_all()

    def _make_side(self, link: str, side: str, upstream: str) -> str:
        self._sides.setdefault(link, []).append(side)
        self._upstreams[side] = upstream
        self._sides_at[side] = self._server.make(side, upstream, side not in self._disabled)
        return self._sides_at[side]

    # -- asking about them ---------------------------------------------------------------------------------------------

    def of(self, node: str) -> list[str]:
        """Return a node's own links, and all that lead to it; a link by its name is itself."""
        if node not in self._nodes and node in self.addresses:
            return [node]
        own = [link for link in self._nodes[node].spec.links if link in self.addresses] if node in self._nodes else []
        return own + [link for other in self._nodes.values() for link, to in other.spec.links.items()
                      if to == node and link in self.addresses]

    def asked_by_nodes_at(self, link: str) -> str:
        """Return the address at which nodes ask questions about a link: behind a command's own side stands a program
        that does not understand them."""
        return self._echoes.get(link) or self.addresses[link]

    def asked_at(self, link: str) -> str:
        """Return the same address, from where the harness is."""
        return self._server.asked_at(self.asked_by_nodes_at(link))

    def carried(self, links: Sequence[str]) -> int | None:
        """See `diloco_chaos.harness.places.capabilities.Carries`: of commands' links."""
        counts = self._server.carried() if set(links) & self._echoes.keys() else None
        return None if counts is None else sum(counts.get(side, 0) for side in self.without_echoes(links))

    def draws_once(self) -> bool:
        """See `diloco_chaos.harness.places.capabilities.DrawsLinks`."""
        return self._server.control.draws_once()

    def connections(self, links: Sequence[str]) -> int | None:
        """See `diloco_chaos.harness.places.capabilities.Carries`: of commands' links."""
        if not set(links) & self._echoes.keys():
            return None
        ports = [int(self._sides_at[side].rpartition(":")[2]) for side in self.without_echoes(links)]
        counts = [count for port in ports if (count := connections(self._server.pid, port)) is not None]
        return sum(counts) if len(counts) == len(ports) else None

    def without_echoes(self, links: Sequence[str]) -> list[str]:
        """Return the sides of links that lead to nodes, by the server's names for them."""
        return [side for side in self._all_sides(links) if not side.endswith(ECHO)]

    def residue(self) -> list[str]:
        """Return what of any fault is still on them, in words."""
        left = []
        for side in self._all_sides(self.addresses):
            left += [f"toxic {toxic.name} on {side}" for toxic in self._server.control.toxics(side)]
            left += [] if self._server.control.enabled(side) else [f"{side} is partitioned"]
        return left

    def _all_sides(self, links: Iterable[str]) -> list[str]:
        return [side for link in links for side in self._sides_of(link)]

    def _sides_of(self, link: str) -> Sequence[str]:
        return self._sides.get(link, [link])

    # -- what faults do to them ----------------------------------------------------------------------------------------

    def degrade(self, link: str, toxics: Sequence[Toxic]) -> None:
        """Put these toxics on a link."""
        with self.lock:
            for toxic, side in product(toxics, self._sides_of(link)):
                self._put(side, toxic)

    def restore(self, link: str, toxics: Sequence[Toxic]) -> None:
        """Take these toxics off a link."""
        with self.lock:
            for toxic, side in product(toxics, self._sides_of(link)):
                self._server.control.remove(side, toxic.name)
                self._toxics.get(side, {}).pop(toxic.name, None)
                self._undos.complete((side, toxic.name))

    def disable(self, link: str) -> None:
        """Take a link down: its connections break, new ones are refused."""
        with self.lock:
            for side in self._sides_of(link):
                self._disable(side)
                self._server.control.set_enabled(side, False)

    def enable(self, link: str) -> None:
        """Bring it up again, at the same addresses."""
        with self.lock:
            for side in self._sides_of(link):
                self._server.control.set_enabled(side, True)
                self._disabled.discard(side)
                self._undos.complete(side)

    def is_disabled(self, side: str) -> bool:
        """Return whether a fault has taken a side down."""
        return side in self._disabled

    def _disable(self, side: str) -> None:
        if (server := self._server.undone_by()) is not None:
            self._undos.record(side, Enable, link=side, **server)
        self._disabled.add(side)

    def _put(self, side: str, toxic: Toxic) -> None:
        if (server := self._server.undone_by()) is not None:
            self._undos.record((side, toxic.name), Toxin, link=side, name=toxic.name, **server)
        self._toxics.setdefault(side, {})[toxic.name] = toxic
        self._server.control.add(side, toxic)
