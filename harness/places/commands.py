"""Nodes that are commands somebody wrote: their ports, their links, what they are started with, when they are ready."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from diloco_chaos.harness.places.base import ClusterError, NodeSpec, status_words
from diloco_chaos.harness.places.catching import Catcher
from diloco_chaos.harness.places.links.run_links import RunLinks
from diloco_chaos.harness.places.nodes.nodes import Nodes, log_of
from diloco_chaos.harness.places.readiness import is_ready
from diloco_chaos.harness.record.storage.files import write_whole
from diloco_chaos.harness.trainers.core.programs import (
    FILES,
    PROGRESS,
    Program,
    Started,
    filled,
    filled_file,
    link_name,
)

Put: TypeAlias = Callable[[str, str], None]
"""Writes a file: its path in the run's folder, and its text."""
_LOOK_S = 0.05


class Addresses(Protocol):
    """The addresses at which a place's nodes are found."""

    def port_for(self, spec: NodeSpec, program: Program) -> int:
        """A port that the node can have.

        Raises:
            ClusterError: it can't have the one that it wants.
        """
        ...

    def found_at(self, node: str) -> str:
        """The host where other nodes find this one."""
        ...

    def seen_at(self, node: str) -> tuple[str, int]:
        """The host and the port where the harness finds it."""
        ...

    def words(self, node: str) -> Mapping[str, str]:
        """Return what `{python}` and `{host}` stand for in a node's command, and `{run}` where the run's folder is not
        this machine's."""
        ...


class PlaceCommands:
    """The commands of one run."""

    def __init__(self, run: Path, nodes: Nodes[Any], links: RunLinks, addresses: Addresses) -> None:
        """`run`: the run's folder."""
        self._run, self._nodes, self._links, self._addresses = run, nodes, links, addresses

    def start(self, nodes: Sequence[NodeSpec], echo: str) -> None:
        """Ports and links are all made before the first of them starts: any may name any. `echo`: where the link server
        finds the echo.

        Raises:
            ClusterError: one can't be started, or is not ready in time.
        """
        (self._run / PROGRESS).mkdir(exist_ok=True)
        for spec, program in _commands(nodes):
            if spec.listens:
                self._nodes.ports[spec.name] = self._addresses.port_for(spec, program)
        for spec, program in _commands(nodes):
            self._link(spec, program, echo)
        for spec, program in _commands(nodes):
            self._nodes.start(spec, spec.incarnation)
            self._wait_ready(spec, program)

    def join(self, spec: NodeSpec, program: Program, echo: str) -> None:
        """Make the links of one that was not there from the beginning, and start it. Nothing waits for it.

        Raises:
            ClusterError: it can't be started.
        """
        self._link(spec, program, echo)
        self._nodes.start(spec, spec.incarnation)

    def _link(self, spec: NodeSpec, program: Program, echo: str) -> None:
        for link, to in spec.links.items():
            named = to in program.talks_to
            upstream = f"{self._addresses.found_at(to)}:{self._nodes.ports[to]}" if named else ""
            self._links.make_of_command(link, upstream, echo)

    def started(self, spec: NodeSpec, program: Program, number: int, put: Put | None = None) -> Started:
        """Return what a process of a node is started with, and write its files. `put`: writes one where the node finds
        it, if the run's folder here is not the node's.

        Raises:
            ClusterError: they can't be written.
        """
        addresses = {to: self._links.addresses[link_name(spec.name, to)] for to in program.talks_to}
        if spec.name in self._nodes.ports:  # it may name itself
            addresses[spec.name] = f"{self._addresses.found_at(spec.name)}:{self._nodes.ports[spec.name]}"
        own = self._own(spec, program, number)
        put = put or partial(write_in, self._run, spec.name)
        for name, text in program.files.items():
            put(f"{filled(FILES, own, {})}/{name}", filled_file(text, own, addresses))
        return program.started(own, addresses, spec.failpoints)

    def _own(self, spec: NodeSpec, program: Program, number: int) -> dict[str, str]:
        """Return what a command may say of its own node."""
        return {**program.own(str(self._run), spec.name), **self._addresses.words(spec.name),
                "incarnation": str(number), "port": str(self._nodes.ports.get(spec.name, 0))}

    def _wait_ready(self, spec: NodeSpec, program: Program) -> None:
        """Wait until a command is ready, by what the scenario says.

        Raises:
            ClusterError: it ended before, or took too long.
        """
        if not program.waits_for:
            return
        log = log_of(self._run, spec.name, spec.incarnation)
        (host, port), until = self._addresses.seen_at(spec.name), time.monotonic() + program.ready.within
        own = self._own(spec, program, spec.incarnation) | {"host": host, "port": str(port)}
        url = filled(program.ready.url, own, {})
        while not is_ready(program.ready, log, (host, port), url, _LOOK_S * 10):
            if (status := self._nodes[spec.name].process.ended()) is not None:
                raise ClusterError(f"{spec.name} ended before it was ready ({status_words(status)}):\n"
                                   f"{self._nodes.last_lines(spec.name, spec.incarnation)}")
            if time.monotonic() > until:
                raise ClusterError(f"{spec.name} was not ready within {program.ready.within:g} s: {program.waits_for} "
                                   f"was waited for. Raise `ready: {{within: ...}}`, or say how it can be known. Its "
                                   f"log ends:\n{self._nodes.last_lines(spec.name, spec.incarnation)}")
            time.sleep(_LOOK_S)


def write_in(run: Path, node: str, name: str, text: str) -> None:
    """Write a file that a node finds when it starts, in the run's folder and nowhere else.

    Raises:
        ClusterError: it can't be written, or its folder leads out of the run's.
    """
    path = run / name
    if not path.resolve().is_relative_to(run.resolve()):
        raise ClusterError(f"{node}: {path} leads out of the run's folder: nothing is written there")
    try:
        write_whole(path, text)
    except OSError as error:
        raise ClusterError(f"{node}: {path} can't be written: {error.strerror}") from error


class Finder(Protocol):
    """Looks up nodes by where they listen, at a place where connections can be caught."""

    def listener(self, host: str, port: int) -> str:
        """The node that takes connections there; empty: none of this run."""
        ...

    def met_at(self, address: str) -> str:
        """The same as an address of version 4 and a port, of a side of a link that nodes find there."""
        ...


class CaughtLinks:
    """Leads connections that no command names through links. Called by the catcher, in threads of its own."""

    def __init__(self, links: RunLinks, finder: Finder) -> None:
        self._links, self._finder = links, finder

    def way(self, node: str, host: str, port: int) -> str:
        """Return where the link is from a node to the one that listens there; empty: no node of this run does, or it
        does itself."""
        with self._links.lock:
            to = self._finder.listener(host, port)
            if not to or to == node:
                return ""
            return self._finder.met_at(self._links.catch(link_name(node, to), host, port))


def must_have_caught(catcher: Catcher | None) -> None:
    """Raises where a connection could not be led through its link.

    Raises:
        ClusterError: it could not.
    """
    if catcher is not None and (error := catcher.failure) is not None:
        raise ClusterError(f"a connection between nodes could not be caught: {error}") from error


def meets(nodes: Sequence[NodeSpec]) -> list[str]:
    """The nodes whose peers are caught."""
    return [spec.name for spec in nodes if spec.program and spec.program.meets]


def _commands(nodes: Sequence[NodeSpec]) -> list[tuple[NodeSpec, Program]]:
    assert all(spec.program is not None for spec in nodes), "only commands are started together"
    return [(spec, spec.program) for spec in nodes if spec.program is not None]
