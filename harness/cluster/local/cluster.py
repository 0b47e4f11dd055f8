"""The cluster as processes on this machine: no root, no Docker, nothing but Python."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from harness.cleanup.processes import TOKEN
from harness.cleanup.undo_log import Enable, Toxin, UndoLog
from harness.cluster.base import ClusterError, NodeSpec, Recorder
from harness.cluster.incarnation import STOP_TIMEOUT_S
from harness.cluster.local.link_server import LinkServer
from harness.cluster.local.process import Process
from harness.cluster.supervised import SupervisedCluster
from harness.links.client import Links

_LINKS = "links"
_LOOPBACK = "127.0.0.1"


class LocalCluster(SupervisedCluster[Process]):
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
        self._ports: dict[str, int] = {}
        self._held: list[socket.socket] = []
        self._owed: dict[tuple[str, str], int] = {}  # (link, toxic; empty: cut) -> the undo log's number of its undo

    def start(self, nodes: Sequence[NodeSpec]) -> None:
        """Start the links, the nodes that listen, then all others."""
        self._server = LinkServer(self._run, lambda argv: self._popen(argv, _LINKS, 0),
                                  lambda: self._last_lines(_LINKS, 0), binary=self._toxiproxy, port=self._links_port)
        for spec in (node for node in nodes if node.listens):
            self._ports[spec.name] = self._hold_port()
            self._spawn(spec, spec.incarnation)
            self._listening_port(spec.name)
        for spec in (node for node in nodes if not node.listens):
            self.join(spec)

    def join(self, node: NodeSpec) -> None:
        """Make the link, start the node."""
        upstream = f"{_LOOPBACK}:{self._ports[node.connects_to]}"
        self._addresses[node.name] = self._links().create(node.name, upstream)
        self._spawn(node, node.incarnation)

    def stop(self) -> None:
        """SIGTERM, and SIGKILL after two seconds; what was owed for these processes is owed no more."""
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

    def _hold_port(self) -> int:
        """A port that nobody else gets while its node is dead: it is bound here, too, where nobody listens."""
        held = socket.socket()
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # whoever binds it next with the same may listen
        held.bind((_LOOPBACK, 0))
        self._held.append(held)
        return int(held.getsockname()[1])

    def _spawn(self, spec: NodeSpec, number: int) -> None:
        argv = spec.command(number, python=sys.executable, host=_LOOPBACK, listen=self._ports.get(spec.name, 0),
                            connect=self._addresses.get(spec.name, ""))
        popen = self._popen([*argv, "--parent", str(os.getpid())], spec.name, number)
        self._nodes[spec.name] = Process(spec, number, popen, self._undo_log)
        self._record("spawn", target=spec.name, incarnation=number, pid=popen.pid)

    def _popen(self, argv: Sequence[str], name: str, incarnation: int) -> subprocess.Popen[bytes]:
        ours = {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1", TOKEN: self._undo_log.token}
        with open(self._run / "logs" / f"{name}.{incarnation}.log", "wb") as log:
            return subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                    env=os.environ | ours, process_group=0)

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
