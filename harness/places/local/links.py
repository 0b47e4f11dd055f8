"""Links on this machine: what clusters share whose link server is a process beside the harness."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from diloco_chaos.harness.base.processes import TOKEN
from diloco_chaos.harness.links.client import Links
from diloco_chaos.harness.places.base import ClusterError, Recorder
from diloco_chaos.harness.places.commanded import ECHO, CommandCluster
from diloco_chaos.harness.places.incarnation import Clock
from diloco_chaos.harness.places.link_undos import Enable, Toxin
from diloco_chaos.harness.places.local.link_server import LinkServer
from diloco_chaos.harness.places.supervised import AnyIncarnation
from diloco_chaos.harness.record.undo_log import UndoLog

LOOPBACK = "127.0.0.1"
OURS = {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
"""In the environment of processes of ours."""
_NAME = "links"


class LinksBeside(CommandCluster[AnyIncarnation]):
    """See the module. What is done to links is in the undo log: the server may outlive the harness for a moment."""

    def __init__(self, run: Path, record: Recorder, undo_log: UndoLog, clock: Clock = time.monotonic) -> None:
        super().__init__(run, record, undo_log, clock)
        self._server: LinkServer | None = None
        self._real = False
        self._links_at = LOOPBACK  # an IP, where nodes find them
        self._owed: dict[tuple[str, str], int] = {}  # (link, toxic; empty: cut) -> the undo log's number of its undo

    def _begin_links(self, binary: str = "", port: int = 0) -> None:
        """Start the server: the real one's binary, or the embedded one; `port`: of its API, 0 for any.

        Raises:
            ClusterError: it did not come up.
        """
        self._real = bool(binary)
        self._server = LinkServer(self._run, lambda argv: self._popen(argv, _NAME, 0, OURS),
                                  lambda: self._last_lines(_NAME, 0), binary=binary, port=port,
                                  listen_on="" if self._links_at == LOOPBACK else self._links_at)

    def _popen(self, argv: Sequence[str], name: str, incarnation: int, env: Mapping[str, str],
               cwd: str | None = None) -> subprocess.Popen[bytes]:
        """A process of this run on this machine, with a log."""
        with open(self._run / "logs" / f"{name}.{incarnation}.log", "wb") as log:
            return subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=cwd,
                                    env=os.environ | env | {TOKEN: self._undo_log.token}, process_group=0)

    def _links(self) -> Links:
        if self._server is None:
            raise ClusterError("the links are not up yet")
        return self._server.links

    def _proxy(self, side: str, upstream: str) -> str:
        return self._links().create(side, upstream, f"{self._links_at}:0", enabled=side not in self._disabled)

    def _link_server(self) -> int:
        return self._server.process.pid if self._server is not None else 0

    def carried(self, links: Sequence[str]) -> int | None:
        """Of commands' links; of the real server's nothing is known: it counts connections that have ended."""
        if self._real or not set(links) & self._echoes.keys():
            return None
        counts = self._links().carried()
        return sum(counts.get(side, 0) for link in links for side in self._sides(link) if not side.endswith(ECHO))

    def _owe_link(self, undo: type[Toxin | Enable], link: str, what: str = "") -> None:
        if (link, what) not in self._owed:
            assert self._server is not None, "there are no links before `start`"
            named = {"name": what} if undo is Toxin else {}
            self._owed[link, what] = self._undo_log.record(undo, api=self._server.api, server=self._server.identity,
                                                           link=link, **named)

    def _paid_link(self, link: str, what: str = "") -> None:
        if (link, what) in self._owed:
            self._undo_log.complete(self._owed.pop((link, what)))

    def _end_links(self) -> None:
        """End the server; what was owed for its links is owed no more."""
        if self._server is not None:
            self._server.process.terminate()
            self._server.process.wait()
        for link, what in list(self._owed):
            self._paid_link(link, what)
