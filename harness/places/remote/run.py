"""What runs on other machines have in common: hosts that are made first, nodes that start on them, clocks that are
compared, and everything that is left at the end."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from diloco_chaos.harness.places.base import ClusterError, NodeSpec, Recorder
from diloco_chaos.harness.places.commands import Addresses, PlaceCommands
from diloco_chaos.harness.places.links.run_links import RunLinks
from diloco_chaos.harness.places.nodes.nodes import Nodes
from diloco_chaos.harness.places.remote.clocks import Comparing
from diloco_chaos.harness.places.remote.connection import AgentError
from diloco_chaos.harness.places.remote.hosts import Hosts
from diloco_chaos.harness.places.remote.process import RemoteProcess
from diloco_chaos.harness.places.remote.watching import Watching
from diloco_chaos.harness.places.stacks.taking import write
from diloco_chaos.harness.record.tape.events import Clock, Warning
from diloco_chaos.harness.record.undo_log import OpenUndos, UndoLog
from diloco_chaos.harness.record.undos import Undo
from diloco_chaos.harness.trainers.core.programs import PROGRESS, STEADY, Program, Started

_CLOCKS_S = 2.0
_STACKS_S = 2.0
"""The end of a run does not wait longer for all stacks together."""
_UNHEARD = "where it stands is not told: its agent did not answer in time; its log has what it wrote"
_NO_FRAMES = ("frames of Python are not told: py-spy would need to trace processes on the node's own machine. "
              "--on local and --on compose tell them; of the built-in trainer they are at the end of its log")


class RemoteRun:
    """See the module."""

    def __init__(self, run: Path, record: Recorder, undo_log: UndoLog, hosts: Hosts, nodes: Nodes[RemoteProcess],
                 links: RunLinks, addresses: Addresses, start_within: float) -> None:
        """`run`: the run's folder. `start_within`: seconds that a node's surroundings may take to run."""
        self._run, self._record, self._hosts, self._nodes, self._links = run, record, hosts, nodes, links
        self._addresses, self._start_within = addresses, start_within
        self.commands = PlaceCommands(run, nodes, links, addresses)
        self.watching: list[Watching] = []
        self._undos = OpenUndos(undo_log)
        self._clocks_at = 0.0
        self._steady_announced = False

    # -- the beginning -------------------------------------------------------------------------------------------------

    def owe(self, undo: type[Undo], **fields: object) -> None:
        """Write down what removes everything of the run, before there is anything."""
        self._undos.record("everything", undo, **fields)

    def prepare(self, nodes: Sequence[NodeSpec]) -> None:
        """Hosts for all. From then on agents are asked for the time, so that those who are there first don't lose their
        patience."""
        self.watching.append(Comparing(self._looks))
        self._hosts.prepare_all(nodes)

    def start(self, nodes: Sequence[NodeSpec], echo: Callable[[], str]) -> None:
        """Start all nodes, on their hosts. `echo`: where the link server finds one; asked where nodes are commands."""
        if any(spec.program for spec in nodes):
            self.commands.start(nodes, echo())
        else:
            self._start_ours(nodes)
        for spec in nodes:
            self._nodes[spec.name].process.wait_started(self._start_within)

    def join(self, node: NodeSpec) -> None:
        """Make its host and its link, start it."""
        self._hosts.prepare(node, node.incarnation)
        self._link(node)
        self._nodes.start(node, node.incarnation)

    def started(self, spec: NodeSpec, program: Program, number: int, process: RemoteProcess) -> Started:
        """Return what a process of a command is started with. Its agent writes its files, below the run's folder there.

        Raises:
            ClusterError: it can't.
        """
        def put(path: str, text: str) -> None:
            process.agent.ask("put", text.encode(), path=path)
        return self.commands.started(spec, program, number, put)

    def _start_ours(self, nodes: Sequence[NodeSpec]) -> None:
        """Start our own nodes: first those that others connect to."""
        for spec in (node for node in nodes if node.listens):
            self._nodes.start(spec, spec.incarnation).process.wait_started(self._start_within)
            self._nodes.ports[spec.name] = self._nodes.await_listening(spec.name)
        for spec in (node for node in nodes if not node.listens):
            self._link(spec)
            self._nodes.start(spec, spec.incarnation)

    def _link(self, spec: NodeSpec) -> None:
        to = spec.connects_to
        self._links.make(spec.name, f"{self._addresses.found_at(to)}:{self._nodes.ports[to]}")

    # -- what goes on --------------------------------------------------------------------------------------------------

    def poll(self) -> None:
        """Notice deaths, hosts that are gone, and restart what is due.

        Raises:
            ClusterError: a node died that nobody killed, or something could not be done.
        """
        self._hosts.look()
        for watching in self.watching:
            if watching.failure is not None:
                raise watching.failure
        self._nodes.poll()
        self._announce_steady_state()
        now = time.monotonic()
        if now >= self._clocks_at:
            self._clocks_at = now + _CLOCKS_S
            self._record_clocks(now)

    def _announce_steady_state(self) -> None:
        """Put the file on every host by which commands learn that the run is steady: from then on they count the points
        of their own at which they hold."""
        steady = self._run / PROGRESS / STEADY
        if self._steady_announced or not steady.exists():
            return
        self._steady_announced = True
        for host in self._hosts.values():
            host.agent.soon("put", path=f"{PROGRESS}/{STEADY}")

    def _record_clocks(self, now: float) -> None:
        for node in self._nodes.everyone():
            if node.alive and node.process.ahead is not None:
                best = node.process.host.clock.best(now)
                self._record(Clock(target=node.name, incarnation=node.number,
                                   ahead=round(best.ahead - node.process.ahead, 6), error=round(best.error, 6)))

    def _looks(self) -> list[Callable[[], None]]:
        return [host.look for host in self._hosts.all() if host.agent.connected]

    def write_stacks(self, nodes: Collection[str]) -> None:
        """Write where the processes of these nodes stand to files in the run's folder, as their agents tell it, within
        two seconds for all."""
        until = time.monotonic() + _STACKS_S
        with suppress(OSError):  # what is judged has no need of them
            write(self._run, {node.process.name: self._stacks(node.process, until - time.monotonic())
                              for node in self._nodes.values() if node.name in nodes and node.alive})

    def _stacks(self, process: RemoteProcess, within: float) -> list[str]:
        if not process.reachable or within <= 0:
            return [_UNHEARD]
        try:
            lines = process.agent.ask("stacks", within=within, name=process.name)["lines"]
        except AgentError as error:
            return [f"where it stands is not told: {error}"]
        return [_NO_FRAMES, *map(str, lines)]

    # -- the end -------------------------------------------------------------------------------------------------------

    def end(self) -> None:
        """SIGTERM, SIGKILL after two seconds; and nothing is watched any more."""
        self._nodes.end((ClusterError,))
        for watching in self.watching:
            watching.close()
        self._hosts.close()

    def leave_nothing(self, *undoings: Callable[[], Any], remove: Callable[[], None]) -> None:
        """Undo what faults have done, and remove everything, each though the other fails: what fails stays owed."""
        acts: list[Callable[[], Any]] = [*undoings, partial(self._remove, remove)]
        for undoing in acts:
            try:
                undoing()
            except ClusterError as error:
                self._record(Warning(reason=str(error)))

    def _remove(self, remove: Callable[[], None]) -> None:
        if "everything" in self._undos:
            remove()
            self._undos.complete("everything")
