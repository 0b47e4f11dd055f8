"""The cluster as processes on this machine: no root, no Docker, nothing but Python."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from diloco_chaos.harness.base.processes import with_token
from diloco_chaos.harness.places.base import ClusterError, NodeSpec, Recorder
from diloco_chaos.harness.places.catching import Catcher
from diloco_chaos.harness.places.commanded import meets
from diloco_chaos.harness.places.incarnation import STOP_TIMEOUT_S
from diloco_chaos.harness.places.local.command import CommandProcess, started_as
from diloco_chaos.harness.places.local.link_server import free_port
from diloco_chaos.harness.places.local.links import LOOPBACK, OURS, LinksBeside
from diloco_chaos.harness.places.local.process import Process
from diloco_chaos.harness.places.sockets import holds, listening
from diloco_chaos.harness.record.tape.events import Spawn
from diloco_chaos.harness.record.undo_log import UndoLog
from diloco_chaos.harness.trainers.core.programs import Program, search_path, taken


def _free(node: str, port: int) -> int:
    """A node's port, or one that is free where it has none.

    Raises:
        ClusterError: somebody else has it.
    """
    if not port:
        return free_port()
    if why := taken(port):
        raise ClusterError(f"{node}: {why}")
    return port


class LocalCluster(LinksBeside[Process]):
    """Implements `diloco_chaos.harness.places.base.Cluster`.

    Nodes die with the thread that made the cluster (PR_SET_PDEATHSIG), so make it in a thread that lives as long as the
    run. Each node has its own process group: Ctrl-C in a terminal reaches the harness alone.
    """

    def __init__(self, run: Path, record: Recorder, undo_log: UndoLog, *, links_port: int = 0,
                 toxiproxy: str = "") -> None:
        """`links_port`: the port of Toxiproxy's API, 0 for any. `toxiproxy`: the real server's binary, empty for the
        embedded one. The rest: see `SupervisedCluster`."""
        super().__init__(run, record, undo_log)
        (run / "logs").mkdir(parents=True, exist_ok=True)
        self._links_port, self._toxiproxy = links_port, toxiproxy
        self._held: list[socket.socket] = []

    def start(self, nodes: Sequence[NodeSpec]) -> None:
        """Start the links, the nodes that listen, then all others; commands in their own order."""
        self._begin_links(self._toxiproxy, self._links_port)
        if meets(nodes):
            self._catcher = Catcher(self._run, self._undo_log.token, self._way)
        if any(spec.program for spec in nodes):
            self._start_commands(nodes, LOOPBACK)
            return
        for spec in (node for node in nodes if node.listens):
            self._listens[spec.name] = self._hold_port()
            self._spawn(spec, spec.incarnation)
            self._listening_port(spec.name)
        for spec in (node for node in nodes if not node.listens):
            self.join(spec)

    def _port_for(self, spec: NodeSpec, program: Program) -> int:
        return _free(spec.name, program.port)

    def _found_at(self, node: str) -> str:
        return LOOPBACK

    def _met_at(self, address: str) -> str:
        return address

    def _seen_at(self, node: str) -> tuple[str, int]:
        return LOOPBACK, self._listens.get(node, 0)

    def _place(self) -> dict[str, str]:
        return {"python": sys.executable, "host": LOOPBACK}

    def signal_process(self, node: str, process: str, number: signal.Signals) -> list[int]:
        """Of a command; see `diloco_chaos.harness.places.base.Processes`."""
        running = self._nodes[node]
        name, _, which = process.rpartition("-")
        if not isinstance(running, CommandProcess) or running.spec.program is None:
            return []
        return running.signal_process(running.spec.program.processes[name], which, number)

    def _listener(self, host: str, port: int) -> str:
        """The node that takes connections there; empty: none."""
        if not (sockets := listening(host, port)):
            return ""
        return next((node for who in with_token(self._undo_log.token)
                     if (node := started_as(who.pid).rpartition(".")[0]) and holds(who.pid, sockets)), "")

    def join(self, node: NodeSpec) -> None:
        """Make the link, start the node."""
        upstream = f"{LOOPBACK}:{self._listens[node.connects_to]}"
        self._addresses[node.name] = self._proxy(node.name, upstream)
        self._spawn(node, node.incarnation)

    def stop(self) -> None:
        """SIGTERM, and SIGKILL after two seconds; what was owed for these processes is owed no more."""
        self._close_catcher()
        for process in self._everyone():
            process.stop()
        until = time.monotonic() + STOP_TIMEOUT_S
        for process in self._everyone():
            process.reap(until)
        self._end_links()
        for held in self._held:
            held.close()
        self._close_echo()

    def _hold_port(self) -> int:
        """A port that nobody else gets while its node is dead: it is bound here, too, where nobody listens."""
        held = socket.socket()
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # whoever binds it next with the same may listen
        held.bind((LOOPBACK, 0))
        self._held.append(held)
        return int(held.getsockname()[1])

    def _spawn(self, spec: NodeSpec, number: int) -> None:
        if spec.program is not None:
            popen = self._command(spec, spec.program, number)
            self._nodes[spec.name] = CommandProcess(spec, number, popen, self._undo_log)
        else:
            argv = spec.command(number, python=sys.executable, host=LOOPBACK, listen=self._listens.get(spec.name, 0),
                                connect=self._addresses.get(spec.name, ""))
            popen = self._popen([*argv, "--parent", str(os.getpid())], spec.name, number, OURS)
            self._nodes[spec.name] = Process(spec, number, popen, self._undo_log)
        self._record(Spawn(target=spec.name, incarnation=number, pid=popen.pid))

    def _command(self, spec: NodeSpec, program: Program, number: int) -> subprocess.Popen[bytes]:
        started = self._started(spec, program, number)
        env = started.env
        env["PATH"] = search_path(env.get("PATH") or os.environ.get("PATH", ""))
        if self._catcher is not None and program.meets:
            env |= self._catcher.environment(env.get("LD_PRELOAD") or os.environ.get("LD_PRELOAD", ""))
        tied = [sys.executable, "-m", "diloco_chaos.harness.base.parent_death", str(os.getpid())]
        return self._popen([*tied, *started.argv], spec.name, number, env, started.cwd or None)
