"""What clusters share whose nodes are on other machines: a host with an agent for each, clocks that are compared, and
machines that are watched.

A node's incarnations follow each other on the same host: what it has on its disk stays. Where the host is gone, the
next incarnation gets a new one, with an empty disk.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Generic, TypeVar

from diloco_chaos.harness.base.machine import Sample
from diloco_chaos.harness.places.base import ClusterError, NodeSpec, Recorder
from diloco_chaos.harness.places.commanded import CommandCluster
from diloco_chaos.harness.places.incarnation import STOP_TIMEOUT_S
from diloco_chaos.harness.places.remote import agent
from diloco_chaos.harness.places.remote.clocks import Comparing
from diloco_chaos.harness.places.remote.machines import Look, Machines
from diloco_chaos.harness.places.remote.node import Host, RemoteNode
from diloco_chaos.harness.places.remote.settings import BACK, Command, PlaceSettings
from diloco_chaos.harness.places.remote.watching import Watching
from diloco_chaos.harness.record.undo_log import UndoLog
from diloco_chaos.harness.record.undos import Command as Undoing
from diloco_chaos.harness.record.user_commands import begun, carried_out
from diloco_chaos.harness.trainers.core import memory
from diloco_chaos.harness.trainers.core.memory import Corruption
from diloco_chaos.harness.trainers.core.programs import PROGRESS, STEADY

SETTINGS = "cluster.json"
"""What nodes of ours read, from the run's folder."""
LOOK_S = 0.1
_CLOCK_READINGS, _LOOK_ANSWERS_S, _CLOCKS_S = 8, 2.0, 2.0
_AGAIN_S, _COMMAND_S = 1.0, 30.0

Settings = TypeVar("Settings", bound=PlaceSettings)


class AwayError(ClusterError):
    """What manages the place does not answer now; it may again."""


class RemoteCluster(CommandCluster[RemoteNode], Generic[Settings]):
    """See the module."""

    def __init__(self, run: Path, record: Recorder, undo_log: UndoLog, settings: Settings) -> None:
        """See `SupervisedCluster`."""
        super().__init__(run, record, undo_log)
        (run / "logs").mkdir(parents=True, exist_ok=True)
        self._settings = settings
        self._hosts: dict[str, Host] = {}
        self._watching: list[Watching] = []
        self._machines = Machines()
        self._avoided: set[str] = set()  # machines
        self._owes: int | None = None  # everything that is there of the run
        self._owed_commands: list[tuple[str, list[str], int]] = []  # what was done, what undoes it, its number
        self._clocks_at = 0.0
        self._steady_told = False

    # -- what places differ in -----------------------------------------------------------------------------------------

    @abstractmethod
    def _make_host(self, spec: NodeSpec, number: int) -> Host:
        """Ask for what an incarnation will run in; it need not be there yet.

        Raises:
            AwayError: nobody can be asked now.
        """

    @abstractmethod
    def _give_up(self, host: Host) -> None:
        """This host was replaced."""

    @abstractmethod
    def _must_come(self, host: Host, what: str, until: float) -> None:
        """Raises where a host will not run, or was waited for until then."""

    @abstractmethod
    def _lost(self, host: Host) -> str:
        """Why it is gone; empty: it is there, as far as is known."""

    @abstractmethod
    def _machine(self, host: Host) -> str:
        """The machine that it is on; empty: nobody knows yet."""

    @abstractmethod
    def _answers(self) -> bool:
        """Whether what manages the place answers."""

    @abstractmethod
    def _node(self, spec: NodeSpec, number: int, host: Host) -> RemoteNode:
        """An incarnation on it, whose agent is asked to start it (`_start`)."""

    @abstractmethod
    def _start(self, node: RemoteNode) -> None:
        """Have a node's agent start an incarnation; called in the host's thread."""

    def _needs(self, spec: NodeSpec) -> dict[str, bytes]:
        """The files that a node needs there, by their names there."""
        if spec.program is not None:
            return {}
        return {SETTINGS: (self._run / SETTINGS).read_bytes(), **{str(path): path.read_bytes() for path in spec.reads}}

    # -- the beginning -------------------------------------------------------------------------------------------------

    def _prepare_all(self, nodes: Sequence[NodeSpec]) -> None:
        """Hosts for all: first for who wants a machine of its own, since the others are put elsewhere. From then on
        agents are asked for the time, so that those who are there first don't lose their patience."""
        self._watching.append(Comparing(self._looks))
        for spec in sorted(nodes, key=lambda spec: not spec.machine):
            self._prepare(spec, spec.incarnation)
            if spec.machine:
                self._wait_placed(spec.name)

    def _start_all(self, nodes: Sequence[NodeSpec], host: str) -> None:
        """On their hosts; `host`: where the link server finds the harness."""
        if any(spec.program for spec in nodes):
            self._start_commands(nodes, host)
        else:
            self._start_nodes(nodes)
        for spec in nodes:
            self._nodes[spec.name].wait_started(self._settings.start_within)

    def _start_nodes(self, nodes: Sequence[NodeSpec]) -> None:
        """Those of ours: who others connect to first."""
        for spec in (node for node in nodes if node.listens):
            self._spawn(spec, spec.incarnation)
            self._nodes[spec.name].wait_started(self._settings.start_within)
            self._listens[spec.name] = self._listening_port(spec.name)
        for spec in (node for node in nodes if not node.listens):
            self._link(spec)
            self._spawn(spec, spec.incarnation)

    def join(self, node: NodeSpec) -> None:
        """Make its host and its link, start it."""
        self._prepare(node, node.incarnation)
        self._link(node)
        self._spawn(node, node.incarnation)

    def _link(self, spec: NodeSpec) -> None:
        upstream = f"{self._found_at(spec.connects_to)}:{self._listens[spec.connects_to]}"
        self._addresses[spec.name] = self._proxy(spec.name, upstream)

    def _wait_placed(self, node: str) -> None:
        """Until it is known which machine a node is on."""
        host, until = self._hosts[node], time.monotonic() + self._settings.start_within
        while not self._machine(host):
            self._must_come(host, node, until)
            time.sleep(LOOK_S)

    def _prepare(self, spec: NodeSpec, number: int) -> None:
        """A host for a node, and a connection with its agent that is there once it runs."""
        host = self._make_host(spec, number)
        before, self._hosts[spec.name] = self._hosts.get(spec.name), host
        host.soon(lambda: self._provide(host, spec))
        if before is not None:
            before.close()
            with suppress(AwayError):  # else it goes with everything else
                self._give_up(before)

    def _provide(self, host: Host, spec: NodeSpec) -> None:
        """Wait for its agent, give it the files that the node needs, and compare clocks."""
        self._wait_there(host, spec.name)
        within = self._settings.start_within
        for name, content in self._needs(spec).items():
            host.agent.ask("put", content, path=name, within=within)
        for _ in range(_CLOCK_READINGS):
            host.look(_LOOK_ANSWERS_S)

    def _wait_there(self, host: Host, what: str) -> None:
        """Until its agent can be asked."""
        until = time.monotonic() + self._settings.start_within
        while not host.agent.wait(LOOK_S):
            if host.lost:
                raise ClusterError(f"{what}: {host.lost}")
            self._must_come(host, what, until)

    def _spawn(self, spec: NodeSpec, number: int) -> None:
        if self._hosts[spec.name].lost or self._hosts[spec.name].leaving:
            try:
                self._prepare(spec, number)
            except AwayError:
                self._nodes[spec.name].restart_at = self._clock() + _AGAIN_S
                return
        host = self._hosts[spec.name]
        self._nodes[spec.name] = self._node(spec, number, host)
        self._record("spawn", target=spec.name, incarnation=number, host=host.name)

    # -- what goes on --------------------------------------------------------------------------------------------------

    def poll(self) -> None:
        """Notice deaths, hosts that are gone, and restart what is due."""
        for host in self._hosts.values():
            host.lost = host.lost or self._lost(host)
            if host.failure is not None and not (host.lost or host.leaving):
                raise host.failure
        for watching in self._watching:
            if watching.failure is not None:
                raise watching.failure
        super().poll()
        self._tell_of_steady_state()
        now = time.monotonic()
        if now >= self._clocks_at:
            self._clocks_at = now + _CLOCKS_S
            self._record_clocks(now)

    def _tell_of_steady_state(self) -> None:
        """Commands that hold at points of their own count from then on; they see it by a file."""
        steady = self._run / PROGRESS / STEADY
        if self._steady_told or not steady.exists():
            return
        self._steady_told = True
        for host in self._hosts.values():
            host.agent.soon("put", path=f"{PROGRESS}/{STEADY}")

    def _record_clocks(self, now: float) -> None:
        for node in self._everyone():
            if node.alive and node.ahead is not None:
                best = node.host.clock.best(now)
                self._record("clock", target=node.name, incarnation=node.incarnation,
                             ahead=round(best.ahead - node.ahead, 6), error=round(best.error, 6))

    def _looks(self) -> list[Callable[[], None]]:
        return [partial(host.look, _LOOK_ANSWERS_S) for host in self._all_hosts() if host.agent.connected]

    def _all_hosts(self) -> list[Host]:
        """The nodes', and the run's own where it has one."""
        return list(self._hosts.values())

    def machines(self, here: Sample) -> list[dict[str, float | str]]:
        """See `diloco_chaos.harness.places.base.Watched`."""
        hosts = self._all_hosts()
        looks = [Look(host.name, host.agent.boot, float(told["at"]), float(told["used"]), told["machine"])
                 for host in hosts if (told := host.told) and not host.lost]
        names = {host.agent.boot: self._machine(host) for host in hosts}
        boot = agent.boot()
        return [{**sample.fields(), "machine": "harness" if which == boot else names.get(which, "")}
                for which, sample in self._machines.samples(looks, boot, here).items()]

    # -- machines ------------------------------------------------------------------------------------------------------

    def lose_machine(self, node: str, restart_after: float | None) -> None:
        """By the user's command; at the end of the run the other one brings it back."""
        machine = self._machine_of(node)
        there = self._on(machine)
        self._command("node_power_loss", machine)
        for name in there:
            current = self._nodes[name]
            current.expected_exit, current.restart_after = True, restart_after
            current.host.lost = f"{machine}, which it was on, has lost its power"
        self._avoided.add(machine)

    def part_machine(self, node: str, off: bool) -> None:
        """By the user's commands."""
        if off:
            self._command("node_partition", self._machine_of(node))
        else:
            self._undo_commands("node_partition")

    def restart_control_plane(self) -> None:
        """By the user's command."""
        begun(self._settings.command("restart_control_plane"))

    def control_plane_away(self, within: float) -> float:
        """See `diloco_chaos.harness.places.base.ControlPlane`."""
        until, gone = time.monotonic() + within, None
        while time.monotonic() < until:
            there = self._answers()
            if gone is None and not there:
                gone = time.monotonic()
            if gone is not None and there:
                return time.monotonic() - gone
            time.sleep(LOOK_S)
        return 0.0

    def _machine_of(self, node: str) -> str:
        if not (machine := self._machine(self._hosts[node])):
            raise ClusterError(f"nobody knows which machine {node} is on")
        return machine

    def _on(self, machine: str) -> list[str]:
        """The nodes that are on a machine."""
        return [name for name, host in self._hosts.items() if self._machine(host) == machine and not host.lost]

    def _command(self, what: Command, machine: str) -> None:
        """Do what only the user can; what undoes it is written down before."""
        back = self._settings.command(BACK[what], machine)
        self._owed_commands.append((what, back, self._undo_log.record(Undoing, argv=back)))
        _carry_out(self._settings.command(what, machine))

    def _undo_commands(self, what: str = "") -> None:
        """Undo all of that, or all of one kind; one that fails keeps no other from being undone."""
        failed = []
        for owed in [one for one in self._owed_commands if not what or one[0] == what]:
            try:
                _carry_out(owed[1])
            except ClusterError as error:
                failed.append(str(error))
                continue
            self._undo_log.complete(owed[2])
            self._owed_commands.remove(owed)
        if failed:
            raise ClusterError("; ".join(failed))

    # -- state ---------------------------------------------------------------------------------------------------------

    def state_files(self, node: str) -> dict[str, int]:
        """As its agent sees them."""
        files = self._hosts[node].agent.ask("list", path=self._state_at(node))["files"]
        return {str(name): int(size) for name, size in files.items()}

    def alter(self, node: str, name: str, change: Callable[[bytes], bytes | None]) -> None:
        """Through its agent."""
        host, path = self._hosts[node].agent, f"{self._state_at(node)}/{name}"
        changed = change(host.fetch("get", path=path)[1])
        if changed is None:
            host.ask("remove", path=path)
        else:
            host.ask("put", changed, path=path)

    def _state_at(self, node: str) -> str:
        """The folder of its state there; one that is not absolute is below the run's."""
        return self._nodes[node].spec.state

    def corrupt_memory(self, node: str, corruption: Corruption) -> None:
        """An order, which its agent puts into the run's folder there."""
        name, content = memory.written(node, self._nodes[node].incarnation, corruption)
        self._hosts[node].agent.ask("put", content, path=name)

    # -- the end -------------------------------------------------------------------------------------------------------

    def _end_nodes(self) -> None:
        """SIGTERM, SIGKILL after two seconds; and nothing is watched any more."""
        for node in self._everyone():
            with suppress(ClusterError):  # it ends with what it runs in
                node.stop()
        until = time.monotonic() + STOP_TIMEOUT_S
        for node in self._everyone():
            node.reap(until)
        for watching in self._watching:
            watching.close()

    def _leave_nothing(self) -> None:
        """Undo what commands have done, and remove everything, each though the other fails: what fails stays owed."""
        for undo in (self._undo_commands, self._remove_owed):
            try:
                undo()
            except ClusterError as error:
                self._record("warning", reason=str(error))

    def _remove_owed(self) -> None:
        if self._owes is not None:
            self._remove_everything()
            self._undo_log.complete(self._owes)
            self._owes = None

    @abstractmethod
    def _remove_everything(self) -> None:
        """Whatever is there of the run.

        Raises:
            ClusterError: something of it is there still.
        """

    # -- nodes that are commands ---------------------------------------------------------------------------------------

    def _listener(self, host: str, port: int) -> str:
        return ""

    def _met_at(self, address: str) -> str:
        return address


def _carry_out(argv: Sequence[str]) -> None:
    """A command of the user's, to its end.

    Raises:
        ClusterError: it fails.
    """
    try:
        carried_out(argv, _COMMAND_S)
    except OSError as error:
        raise ClusterError(f"{' '.join(argv)}: {error}") from error
