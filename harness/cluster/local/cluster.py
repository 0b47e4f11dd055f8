"""The cluster as processes on this machine: no root, no Docker, nothing but Python."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from harness.cleanup.processes import TOKEN, with_token
from harness.cleanup.undo_log import Enable, Toxin, UndoLog
from harness.cluster.base import ClusterError, NodeSpec, Recorder
from harness.cluster.catching import Catcher
from harness.cluster.commanded import ECHO, CommandCluster, meets
from harness.cluster.incarnation import STOP_TIMEOUT_S
from harness.cluster.local.command import CommandProcess, started_as
from harness.cluster.local.link_server import LinkServer, free_port
from harness.cluster.local.process import Process
from harness.cluster.sockets import holds, listening
from harness.core.programs import Program, search_path, taken
from harness.links.client import Links

_LINKS = "links"
_LOOPBACK = "127.0.0.1"
_OURS = {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}


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


class LocalCluster(CommandCluster[Process]):
    """Implements `harness.cluster.base.Cluster`.

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
        self._server: LinkServer | None = None
        self._held: list[socket.socket] = []
        self._owed: dict[tuple[str, str], int] = {}  # (link, toxic; empty: cut) -> the undo log's number of its undo

    def start(self, nodes: Sequence[NodeSpec]) -> None:
        """Start the links, the nodes that listen, then all others; commands in their own order."""
        self._server = LinkServer(self._run, lambda argv: self._popen(argv, _LINKS, 0, _OURS),
                                  lambda: self._last_lines(_LINKS, 0), binary=self._toxiproxy, port=self._links_port)
        if meets(nodes):
            self._catcher = Catcher(self._run, self._undo_log.token, self._way)
        if any(spec.program for spec in nodes):
            self._start_commands(nodes, _LOOPBACK)
            return
        for spec in (node for node in nodes if node.listens):
            self._listens[spec.name] = self._hold_port()
            self._spawn(spec, spec.incarnation)
            self._listening_port(spec.name)
        for spec in (node for node in nodes if not node.listens):
            self.join(spec)

    def _port_for(self, spec: NodeSpec, program: Program) -> int:
        return _free(spec.name, program.port)

    def _proxy(self, side: str, upstream: str) -> str:
        return self._links().create(side, upstream, enabled=side not in self._disabled)

    def _found_at(self, node: str) -> str:
        return _LOOPBACK

    def _met_at(self, address: str) -> str:
        return address

    def _seen_at(self, node: str) -> tuple[str, int]:
        return _LOOPBACK, self._listens.get(node, 0)

    def _link_server(self) -> int:
        return self._server.process.pid if self._server is not None else 0

    def _place(self) -> dict[str, str]:
        return {"python": sys.executable, "host": _LOOPBACK}

    def signal_process(self, node: str, process: str, number: signal.Signals) -> list[int]:
        """Of a command; see `harness.cluster.base.Processes`."""
        running = self._nodes[node]
        name, _, which = process.rpartition("-")
        if not isinstance(running, CommandProcess) or running.spec.program is None:
            return []
        return running.signal_process(running.spec.program.processes[name], which, number)

    def carried(self, links: Sequence[str]) -> int | None:
        """Of commands' links; of the real server's nothing is known: it counts connections that have ended."""
        if self._toxiproxy or not set(links) & self._echoes.keys():
            return None
        counts = self._links().carried()
        return sum(counts.get(side, 0) for link in links for side in self._sides(link) if not side.endswith(ECHO))

    def _listener(self, host: str, port: int) -> str:
        """The node that takes connections there; empty: none."""
        if not (sockets := listening(host, port)):
            return ""
        return next((node for who in with_token(self._undo_log.token)
                     if (node := started_as(who.pid).rpartition(".")[0]) and holds(who.pid, sockets)), "")

    def join(self, node: NodeSpec) -> None:
        """Make the link, start the node."""
        upstream = f"{_LOOPBACK}:{self._listens[node.connects_to]}"
        self._addresses[node.name] = self._proxy(node.name, upstream)
        self._spawn(node, node.incarnation)

    def stop(self) -> None:
        """SIGTERM, and SIGKILL after two seconds; what was owed for these processes is owed no more."""
        self._close_catcher()
        for process in self._everyone():
            process.stop()
        if self._server is not None:
            self._server.process.terminate()
        until = time.monotonic() + STOP_TIMEOUT_S
        for process in self._everyone():
            process.reap(until)
        if self._server is not None:
            self._server.process.wait()
        for link, what in list(self._owed):
            self._paid_link(link, what)
        for held in self._held:
            held.close()
        self._close_echo()

    def _hold_port(self) -> int:
        """A port that nobody else gets while its node is dead: it is bound here, too, where nobody listens."""
        held = socket.socket()
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # whoever binds it next with the same may listen
        held.bind((_LOOPBACK, 0))
        self._held.append(held)
        return int(held.getsockname()[1])

    def _spawn(self, spec: NodeSpec, number: int) -> None:
        if spec.program is not None:
            popen = self._command(spec, spec.program, number)
            self._nodes[spec.name] = CommandProcess(spec, number, popen, self._undo_log)
        else:
            argv = spec.command(number, python=sys.executable, host=_LOOPBACK, listen=self._listens.get(spec.name, 0),
                                connect=self._addresses.get(spec.name, ""))
            popen = self._popen([*argv, "--parent", str(os.getpid())], spec.name, number, _OURS)
            self._nodes[spec.name] = Process(spec, number, popen, self._undo_log)
        self._record("spawn", target=spec.name, incarnation=number, pid=popen.pid)

    def _command(self, spec: NodeSpec, program: Program, number: int) -> subprocess.Popen[bytes]:
        started = self._started(spec, program, number)
        env = started.env
        env["PATH"] = search_path(env.get("PATH") or os.environ.get("PATH", ""))
        if self._catcher is not None and program.meets:
            env |= self._catcher.environment(env.get("LD_PRELOAD") or os.environ.get("LD_PRELOAD", ""))
        return self._popen([sys.executable, "-m", "harness.cleanup.parent_death", str(os.getpid()), *started.argv],
                           spec.name, number, env, started.cwd or None)

    def _popen(self, argv: Sequence[str], name: str, incarnation: int, env: Mapping[str, str],
               cwd: str | None = None) -> subprocess.Popen[bytes]:
        with open(self._run / "logs" / f"{name}.{incarnation}.log", "wb") as log:
            return subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=cwd,
                                    env=os.environ | env | {TOKEN: self._undo_log.token}, process_group=0)

    def _links(self) -> Links:
        if self._server is None:
            raise ClusterError("the links are not up yet")
        return self._server.links

    def _owe_link(self, undo: type[Toxin | Enable], link: str, what: str = "") -> None:
        if (link, what) not in self._owed:
            assert self._server is not None, "there are no links before `start`"
            named = {"name": what} if undo is Toxin else {}
            self._owed[link, what] = self._undo_log.record(undo, api=self._server.api, server=self._server.identity,
                                                           link=link, **named)

    def _paid_link(self, link: str, what: str = "") -> None:
        if (link, what) in self._owed:
            self._undo_log.complete(self._owed.pop((link, what)))
