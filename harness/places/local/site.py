"""A run as processes on this machine: no root, no Docker, nothing but Python."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from diloco_chaos.harness.base.parent_death import tied
from diloco_chaos.harness.places.base import NodeSpec, Recorder
from diloco_chaos.harness.places.catching import Catcher
from diloco_chaos.harness.places.commands import CaughtLinks, PlaceCommands, meets, must_have_caught
from diloco_chaos.harness.places.files import RunFiles
from diloco_chaos.harness.places.links.run_links import RunLinks
from diloco_chaos.harness.places.local.addresses import LocalAddresses
from diloco_chaos.harness.places.local.cuda import CudaFaults
from diloco_chaos.harness.places.local.family import Family
from diloco_chaos.harness.places.local.fork_client import ForkedProcess, ForkServerProcess
from diloco_chaos.harness.places.local.hangs import InnerHangs
from diloco_chaos.harness.places.local.links import CorruptedLinks, LinksBeside
from diloco_chaos.harness.places.local.power_losses import PowerLosses
from diloco_chaos.harness.places.local.preloads import Preloads
from diloco_chaos.harness.places.local.pressure.pressures import Pressures
from diloco_chaos.harness.places.local.process import LocalProcess
from diloco_chaos.harness.places.local.spawning import LOOPBACK, OURS, spawned
from diloco_chaos.harness.places.local.uncaught import Uncaught
from diloco_chaos.harness.places.nodes.nodes import Nodes
from diloco_chaos.harness.places.site import Site
from diloco_chaos.harness.places.stacks.taking import take, write
from diloco_chaos.harness.preload.library import PRELOADED
from diloco_chaos.harness.record.tape.events import Warning
from diloco_chaos.harness.record.undo_log import UndoLog
from diloco_chaos.harness.trainers.core.programs import Program, search_path
from diloco_chaos.harness.trainers.wire.echo import EchoServer

_LOOK_S = 1.0
"""Between looks at what can't be caught."""


class LocalSite(Site):
    """Nodes die with the thread that made it (PR_SET_PDEATHSIG), so make it in a thread that lives as long as the
    run."""

    nodes: Nodes[LocalProcess]

    def __init__(self, run: Path, record: Recorder, undo_log: UndoLog, *, links_port: int = 0, toxiproxy: str = "",
                 forks: bool = True, launcher: Callable[[NodeSpec], Sequence[str]] = lambda _: ()) -> None:
        """`links_port`: the port of Toxiproxy's API, 0 for any. `toxiproxy`: the real server's binary, empty for the
        embedded one. `forks`: nodes are forked from one process that has imported what they need; else each is an
        interpreter of its own, as one with a launcher always is. `launcher(node)`: a program, with its arguments, that
        becomes the node's command, as `nice` does. The rest: see `diloco_chaos.harness.places.place.Place.site`."""
        (run / "logs").mkdir(parents=True, exist_ok=True)
        self._run, self._record, self._undo_log, self._launcher = run, record, undo_log, launcher
        self._links_port, self._toxiproxy = links_port, toxiproxy
        self.nodes = Nodes(run, record, undo_log, self._spawn)
        self.server = LinksBeside(run, undo_log.token)
        self.links = RunLinks(self.server, self.nodes, undo_log)
        self.files = RunFiles(run, self.nodes)
        self._uncaught = Uncaught(undo_log.token)
        self._processes = NodeProcesses(self.nodes)
        self._preloads = Preloads(run, self.nodes, undo_log)
        self._hangs = InnerHangs(self._preloads, self.nodes, undo_log)
        self._power_losses = PowerLosses(run, self._preloads, self.nodes)
        self._cuda = CudaFaults(self._preloads, self.nodes, undo_log)
        self._pressures = Pressures(run, self.nodes, undo_log)
        self.parts = (self.links, CorruptedLinks(self.server, self.links), self._processes, self._uncaught,
                      self._preloads, self._hangs, self._power_losses, self._cuda, self._pressures)
        self._addresses = LocalAddresses(self.nodes, undo_log.token)
        self._commands = PlaceCommands(run, self.nodes, self.links, self._addresses)
        self._forks = forks
        self._fork_server: ForkServerProcess | None = None
        self._catcher: Catcher | None = None
        self._echo: EchoServer | None = None
        self._look_at = 0.0

    def start(self, nodes: Sequence[NodeSpec]) -> None:
        """Start the links, the nodes that listen, then all others; commands in their own order."""
        if self._forks and any(spec.imports and not self._launcher(spec) for spec in nodes):
            self._fork_server = ForkServerProcess(self._run, self._undo_log.token)
        self.server.begin(self._toxiproxy, self._links_port)
        self._begin(nodes)
        if meets(nodes):
            self._catcher = Catcher(self._run, self._undo_log.token, CaughtLinks(self.links, self._addresses).way)
        if any(spec.program for spec in nodes):
            self._echo = EchoServer(self._undo_log.token, LOOPBACK)
            self._commands.start(nodes, self._echo.address)
            return
        listening, others = ([spec for spec in nodes if spec.listens is listens] for listens in (True, False))
        for spec in listening:
            self.nodes.ports[spec.name] = self._addresses.hold_port()
            self.nodes.start(spec, spec.incarnation)
        if self._fork_server is not None:  # while those begin to listen
            self._fork_server.imports({module: None for spec in others for module in spec.imports})
        for spec in listening:
            self.nodes.await_listening(spec.name)
        for spec in others:
            self._started(spec)

    def join(self, node: NodeSpec) -> None:
        """Make the link, start the node."""
        self._begin([node])
        if node.program is not None and self._echo is not None:
            self._commands.join(node, node.program, self._echo.address)
        else:
            self._started(node)

    def _begin(self, nodes: Sequence[NodeSpec]) -> None:
        """Prepare what is preloaded into these nodes, what they may lose, and what may press on them."""
        self._preloads.begin(nodes)
        self._power_losses.begin(nodes)
        self._pressures.begin(nodes)

    def _started(self, node: NodeSpec) -> None:
        self.links.make(node.name, f"{LOOPBACK}:{self.nodes.ports[node.connects_to]}")
        self.nodes.start(node, node.incarnation)

    def poll(self) -> None:
        """Supervise, and raise an error for what could not be caught."""
        must_have_caught(self._catcher)
        if self._catcher is not None and time.monotonic() > self._look_at:
            self._look_at = time.monotonic() + _LOOK_S
            for node, program in self._uncaught.new_static(meets([each.spec for each in self.nodes.values()])):
                self._record(Warning(reason=f"{node}: peers: caught: {program} is linked statically: its connections "
                                            f"can't be caught, and faults of links don't reach them"))
        self._pressures.poll()
        super().poll()

    def residue(self) -> list[str]:
        """Return what of any fault is still there, in words; empty when all is undone."""
        return [*super().residue(), *self._preloads.residue(), *self._hangs.residue(), *self._cuda.residue(),
                *self._pressures.residue()]

    def dump_stacks(self, nodes: Collection[str]) -> None:
        """Write them to files in the run's folder, too, whatever the nodes are."""
        with suppress(OSError):  # what is judged has no need of them
            write(self._run, take({f"{node.name}.{node.number}": node.process.all_of_it()
                                   for node in self.nodes.values() if node.name in nodes and node.alive},
                                  self._undo_log.token))
        super().dump_stacks(nodes)

    def stop(self) -> None:
        """SIGTERM, and SIGKILL after two seconds; what was owed for these processes is owed no more."""
        if self._catcher is not None:
            self._catcher.close()
        self._pressures.end()
        self.nodes.end()
        self._processes.end()
        self._preloads.end()
        self._power_losses.end()
        self.server.end()
        self.links.close()
        if self._fork_server is not None:
            self._fork_server.close()
            self._fork_server = None
        self._addresses.close()
        if self._echo is not None:
            self._echo.close()
            self._echo = None

    def _spawn(self, spec: NodeSpec, number: int) -> LocalProcess:
        if spec.program is not None:
            return self._command(spec, spec.program, number)
        argv = spec.command(number, python=sys.executable, host=LOOPBACK, listen=self.nodes.ports.get(spec.name, 0),
                            connect=self.links.addresses.get(spec.name, ""))
        forked = self._forked(spec, number, argv)
        env = {**OURS, **self._preloads.environment(spec.name, _preloaded(OURS))}
        return LocalProcess(forked or self._popen(spec, number, [*argv, "--parent", str(os.getpid())], env),
                            self._undo_log)

    def _forked(self, spec: NodeSpec, number: int, argv: Sequence[str]) -> ForkedProcess | None:
        if self._fork_server is None or not spec.imports or spec.preloaded or self._launcher(spec):
            return None
        _, _, module, *arguments = argv
        self._fork_server.imports([module, *spec.imports])
        return self._fork_server.start(spec.name, number, module, arguments)

    def _command(self, spec: NodeSpec, program: Program, number: int) -> LocalProcess:
        started = self._commands.started(spec, program, number)
        env = started.env
        env["PATH"] = search_path(env.get("PATH") or os.environ.get("PATH", ""))
        if self._catcher is not None and program.meets:
            env |= self._catcher.environment(_preloaded(env))
        env |= self._preloads.environment(spec.name, _preloaded(env))
        argv = tied(started.argv, env.pop(PRELOADED, ""))
        popen = self._popen(spec, number, argv, env, started.cwd or None)
        token = self._undo_log.token
        family = Family(popen, token, f"{spec.name}.{number}", keeps_leftovers=program.keeps_leftovers)
        return LocalProcess(popen, self._undo_log, family)

    def _popen(self, spec: NodeSpec, number: int, argv: Sequence[str], env: dict[str, str],
               cwd: str | None = None) -> subprocess.Popen[bytes]:
        return spawned(self._run, self._undo_log.token, [*self._launcher(spec), *argv], spec.name, number, env, cwd)


def _preloaded(env: Mapping[str, str]) -> str:
    """Return what a process with this environment, beside the harness' own, preloads."""
    return env.get(PRELOADED) or os.environ.get(PRELOADED, "")


class NodeProcesses:
    """Implements `diloco_chaos.harness.places.capabilities.InnerProcesses` and `Processes`."""

    def __init__(self, nodes: Nodes[LocalProcess]) -> None:
        self._nodes = nodes
        self._left: list[LocalProcess] = []

    def signal_process(self, node: str, process: str, number: signal.Signals) -> list[int]:
        """Signal a process of a command; other nodes have none that could be distinguished."""
        running, (name, _, which) = self._nodes[node], process.rpartition("-")
        if running.process.family is None or running.spec.program is None:
            return []
        return running.process.family.signal_process(running.spec.program.processes[name], which, number)

    def kill_first(self, node: str, restart_after: float | None) -> None:
        """Kill the first process of a node; `end` ends what it leaves behind."""
        running = self._nodes[node]
        if running.alive:
            running.expect_exit(restart_after)
            self._left.append(running.process)
            running.process.kill_first()

    def end(self) -> None:
        """The run is over: end what killed processes have left behind."""
        for process in self._left:
            process.over(True)
