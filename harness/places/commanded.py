"""What clusters share whose nodes may be commands that somebody wrote: ports, links, and when they are ready.

Every link of a command has two sides at the link server: its own, and that of an echo of ours, which has the same
toxics. The echo answers questions about the link, since what stands behind it speaks a language of its own.
"""

from __future__ import annotations

import threading
import time
from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path

from diloco_chaos.harness.links.addresses import join_address
from diloco_chaos.harness.links.toxic import Toxic
from diloco_chaos.harness.places.base import ClusterError, NodeSpec, Recorder, status_words
from diloco_chaos.harness.places.catching import Catcher
from diloco_chaos.harness.places.incarnation import Clock
from diloco_chaos.harness.places.link_undos import Enable
from diloco_chaos.harness.places.readiness import is_ready
from diloco_chaos.harness.places.sockets import connections
from diloco_chaos.harness.places.supervised import AnyIncarnation, SupervisedCluster
from diloco_chaos.harness.record.undo_log import UndoLog
from diloco_chaos.harness.trainers.core.programs import PROGRESS, Program, Started, filled, link_name
from diloco_chaos.harness.trainers.wire.echo import EchoServer

ECHO = ":echo"
"""What the name of a link's echo ends with."""
_LOOK_S = 0.05


class CommandCluster(SupervisedCluster[AnyIncarnation]):
    """See the module."""

    def __init__(self, run: Path, record: Recorder, undo_log: UndoLog, clock: Clock = time.monotonic) -> None:
        super().__init__(run, record, undo_log, clock)
        self._listens: dict[str, int] = {}  # node -> its port
        self._echo: EchoServer | None = None
        self._echoes: dict[str, str] = {}  # link -> where its echo is asked
        self._proxies: dict[str, list[str]] = {}  # link -> its sides, by the server's names for them
        self._sides_at: dict[str, str] = {}  # side -> where nodes find it
        self._catcher: Catcher | None = None
        self._caught: dict[tuple[str, str, int], str] = {}  # (link, host, port there) -> its side
        self._linking = threading.RLock()  # connections are caught in threads of their own

    # -- what places differ in -----------------------------------------------------------------------------------------

    @abstractmethod
    def _port_for(self, spec: NodeSpec, program: Program) -> int:
        """A port that the node can have.

        Raises:
            ClusterError: it can't have the one that it wants.
        """

    @abstractmethod
    def _proxy(self, side: str, upstream: str) -> str:
        """Make one side of a link; host:port where nodes find it."""

    @abstractmethod
    def _found_at(self, node: str) -> str:
        """The host where other nodes find this one."""

    @abstractmethod
    def _seen_at(self, node: str) -> tuple[str, int]:
        """The host and the port where the harness finds it."""

    @abstractmethod
    def _place(self) -> dict[str, str]:
        """What `{python}` and `{host}` stand for here."""

    @abstractmethod
    def _link_server(self) -> int:
        """A pid on the link server's network."""

    @abstractmethod
    def _listener(self, host: str, port: int) -> str:
        """The node that takes connections there; empty: none of this run."""

    @abstractmethod
    def _met_at(self, address: str) -> str:
        """The same as an address of version 4 and a port, of a side of a link that nodes find there."""

    def _asked_at(self, address: str) -> str:
        """Where the harness finds a side of a link that nodes find there."""
        return address

    # -- the beginning -------------------------------------------------------------------------------------------------

    def _start_commands(self, nodes: Sequence[NodeSpec], host: str) -> None:
        """Ports and links are all there before the first of them starts: any may name any. `host`: where the link
        server finds the harness."""
        (self._run / PROGRESS).mkdir(exist_ok=True)
        echo = self._begin_echo(host)
        for spec, program in _commands(nodes):
            if spec.listens:
                self._listens[spec.name] = self._port_for(spec, program)
        for spec, program in _commands(nodes):
            for link, to in spec.links.items():
                self._echoes[link] = self._addresses[link] = self._side(link, f"{link}{ECHO}", echo)
                if to in program.talks_to:
                    self._addresses[link] = self._side(link, link, f"{self._found_at(to)}:{self._listens[to]}")
        for spec, program in _commands(nodes):
            self._spawn(spec, spec.incarnation)
            self._wait_ready(spec, program)

    def _begin_echo(self, host: str) -> str:
        """Where the link server finds the echo: at the harness, which it finds as `host`."""
        self._echo = EchoServer(self._undo_log.token, host)
        return self._echo.address

    def _wait_ready(self, spec: NodeSpec, program: Program) -> None:
        """Until it is as the scenario says.

        Raises:
            ClusterError: it ended before, or took too long.
        """
        if not program.waits_for:
            return
        log = self._run / "logs" / f"{spec.name}.{spec.incarnation}.log"
        (host, port), until = self._seen_at(spec.name), time.monotonic() + program.ready.within
        own = self._own(spec, program, spec.incarnation) | {"host": host, "port": str(port)}
        url = filled(program.ready.url, own, {})
        while not is_ready(program.ready, log, (host, port), url, _LOOK_S * 10):
            if (status := self._nodes[spec.name].ended()) is not None:
                raise ClusterError(f"{spec.name} ended before it was ready ({status_words(status)}):\n"
                                   f"{self._last_lines(spec.name, spec.incarnation)}")
            if time.monotonic() > until:
                raise ClusterError(f"{spec.name} was not ready within {program.ready.within:g} s: {program.waits_for} "
                                   f"was waited for. Raise `ready: {{within: ...}}`, or say how it can be known. Its "
                                   f"log ends:\n{self._last_lines(spec.name, spec.incarnation)}")
            time.sleep(_LOOK_S)

    def _started(self, spec: NodeSpec, program: Program, number: int) -> Started:
        """What a process of it is started with."""
        there = {to: self._addresses[link_name(spec.name, to)] for to in program.talks_to}
        if spec.name in self._listens:
            there[spec.name] = f"{self._found_at(spec.name)}:{self._listens[spec.name]}"  # it may name itself
        return program.started(self._own(spec, program, number), there, spec.failpoints)

    def _own(self, spec: NodeSpec, program: Program, number: int) -> dict[str, str]:
        """What a command may say of its own node."""
        return program.own(str(self._run), spec.name) | self._place() | {
            "incarnation": str(number), "port": str(self._listens.get(spec.name, 0))}

    # -- links ---------------------------------------------------------------------------------------------------------

    def address(self, link: str) -> str:
        """Where questions about a link are asked: behind a command's stands somebody who does not understand them."""
        return self._asked_at(self._echoes.get(link) or super().address(link))

    def connections(self, links: Sequence[str]) -> int | None:
        """See `diloco_chaos.harness.places.base.Carries`."""
        if not set(links) & self._echoes.keys():
            return None
        ports = [int(self._sides_at[side].rpartition(":")[2]) for link in links for side in self._proxies[link]
                 if not side.endswith(ECHO)]
        there = [found for port in ports if (found := connections(self._link_server(), port)) is not None]
        return sum(there) if len(there) == len(ports) else None

    def _side(self, link: str, side: str, upstream: str) -> str:
        """Make a side of a link; where nodes find it."""
        self._proxies.setdefault(link, []).append(side)
        self._sides_at[side] = self._proxy(side, upstream)
        return self._sides_at[side]

    def _sides(self, link: str) -> Sequence[str]:
        """Its echo has the same toxics, and so has whatever was caught."""
        return self._proxies.get(link, [link])

    # -- connections that no command names -----------------------------------------------------------------------------

    def _way(self, node: str, host: str, port: int) -> str:
        """Where the link is from a node to whoever listens there; empty: nobody of this run does, or it does itself."""
        with self._linking:
            to = self._listener(host, port)
            if not to or to == node:
                return ""
            link = link_name(node, to)
            if (link, host, port) not in self._caught:
                self._caught[link, host, port] = self._catch(link, host, port)
            return self._met_at(self._sides_at[self._caught[link, host, port]])

    def _catch(self, link: str, host: str, port: int) -> str:
        """A proxy more for a link, with all that is on the link now."""
        side, like = f"{link}:{host}:{port}", f"{link}{ECHO}"
        if like in self._disabled:
            self._owe_link(Enable, side)
            self._disabled.add(side)
        self._side(link, side, join_address(host, port))
        for toxic in self._toxics.get(like, {}).values():
            self._put(side, toxic)
        return side

    def poll(self) -> None:
        """And tell what could not be caught."""
        if self._catcher is not None and (error := self._catcher.failure) is not None:
            raise ClusterError(f"a connection between nodes could not be caught: {error}") from error
        super().poll()

    def degrade(self, link: str, toxics: Sequence[Toxic]) -> None:
        """Nothing is caught meanwhile; so it is with the others."""
        with self._linking:
            super().degrade(link, toxics)

    def restore(self, link: str, toxics: Sequence[Toxic]) -> None:
        """Take these toxics off a link."""
        with self._linking:
            super().restore(link, toxics)

    def disable_link(self, link: str) -> None:
        """Its connections break, new ones are refused."""
        with self._linking:
            super().disable_link(link)

    def enable_link(self, link: str) -> None:
        """Bring it up again, at the same addresses."""
        with self._linking:
            super().enable_link(link)

    # -- the end -------------------------------------------------------------------------------------------------------

    def _close_catcher(self) -> None:
        """Connections go where they ask to."""
        if self._catcher is not None:
            self._catcher.close()

    def _close_echo(self) -> None:
        """Nobody asks about links any more."""
        if self._echo is not None:
            self._echo.close()
            self._echo = None


def meets(nodes: Sequence[NodeSpec]) -> list[str]:
    """The nodes whose peers are caught."""
    return [spec.name for spec in nodes if spec.program and spec.program.meets]


def _commands(nodes: Sequence[NodeSpec]) -> list[tuple[NodeSpec, Program]]:
    assert all(spec.program is not None for spec in nodes), "only commands are started together"
    return [(spec, spec.program) for spec in nodes if spec.program is not None]
