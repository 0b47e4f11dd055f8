"""The server of links that is a process beside the harness: for nodes of this machine, and those that find it here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from diloco_chaos.harness.links.client import Links
from diloco_chaos.harness.links.corruption import Corrupted
from diloco_chaos.harness.places.base import ClusterError
from diloco_chaos.harness.places.links.run_links import RunLinks
from diloco_chaos.harness.places.local.link_server import LocalLinkServer
from diloco_chaos.harness.places.local.spawning import LOOPBACK, OURS, spawned
from diloco_chaos.harness.places.nodes.nodes import end_of_log

_NAME = "links"


class LinksBeside:
    """Implements `diloco_chaos.harness.places.links.run_links.ProxyServer`. What is done to its links is in the undo
    log: it may outlive the harness for a moment."""

    def __init__(self, run: Path, token: str) -> None:
        """`run`: the run's folder. `token`: of the run."""
        self._run, self._token = run, token
        self._server: LocalLinkServer | None = None
        self._real, self._at = False, LOOPBACK

    def begin(self, binary: str = "", port: int = 0, at: str = LOOPBACK) -> None:
        """Start it: the real one's binary, or the embedded one. `port`: of its API, 0 for any. `at`: the IP where nodes
        find links.

        Raises:
            ClusterError: it did not come up.
        """
        self._real, self._at = bool(binary), at
        self._server = LocalLinkServer(self._run, lambda argv: spawned(self._run, self._token, argv, _NAME, 0, OURS),
                                       lambda: end_of_log(self._run, _NAME, 0), binary=binary, port=port,
                                       listen_on="" if at == LOOPBACK else at)

    def end(self) -> None:
        """End it, and its links with it."""
        if self._server is not None:
            self._server.process.terminate()
            self._server.process.wait()

    @property
    def server(self) -> LocalLinkServer:
        """The process.

        Raises:
            ClusterError: it was not started.
        """
        if self._server is None:
            raise ClusterError("the links are not up yet")
        return self._server

    @property
    def control(self) -> Links:
        """Return the client of its API."""
        return self.server.links

    @property
    def pid(self) -> int:
        """The process itself."""
        return self.server.process.pid

    def make(self, side: str, upstream: str, enabled: bool) -> str:
        """Make a side of a link at any port; return its address (host:port)."""
        return self.control.create(side, upstream, f"{self._at}:0", enabled=enabled)

    def asked_at(self, address: str) -> str:
        """Return the address at which nodes find it, too."""
        return address

    def carried(self) -> Mapping[str, int] | None:
        """Return what the embedded server counts; None for the real one, which counts only connections that have
        ended."""
        return None if self._real else self.control.carried()

    def undone_by(self) -> Mapping[str, Any]:
        """Return its API and its process: the undo goes through that API as long as it is this process that serves
        it."""
        return {"api": self.server.api, "server": self.server.identity}


class CorruptedLinks:
    """Implements `diloco_chaos.harness.places.capabilities.CorruptsLinks`: the embedded server's accounts."""

    def __init__(self, server: LinksBeside, links: RunLinks) -> None:
        self._server, self._links = server, links

    def corrupted(self, links: Sequence[str], toxics: Sequence[str]) -> Mapping[str, Corrupted]:
        """See the capability."""
        done, sides = self._server.control.corrupted(), self._links.without_echoes(links)
        return {f"{side} {toxic.rpartition('-')[2]}": done[side, toxic]
                for side in sides for toxic in toxics if (side, toxic) in done}
