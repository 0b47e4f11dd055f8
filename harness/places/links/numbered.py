"""Links of a Toxiproxy in a container or a pod: each side has a port of its own there, and keeps it when the server is
restarted."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from diloco_chaos.harness.links.client import Links
from diloco_chaos.harness.places.links.run_links import RunLinks

_ANY, _FIRST = "0.0.0.0", 7001  # noqa: S104 - of a network of its own


class NumberedLinks:
    """Implements `diloco_chaos.harness.places.links.run_links.ProxyServer`; the server ends with all of the run."""

    def __init__(self, control: Callable[[], Links], host: str, asked_at: Callable[[str], str],
                 pid: Callable[[], int] = lambda: 0) -> None:
        """`control`: its API; raises ClusterError where it is not up. `host`: where nodes find it. `asked_at(address)`:
        where the harness finds a side that nodes find there. `pid`: of its first process, as this machine knows it."""
        self._control, self._host, self._asked_at, self._pid = control, host, asked_at, pid
        self._ports: dict[str, int] = {}

    @property
    def control(self) -> Links:
        """Return the client of its API."""
        return self._control()

    @property
    def pid(self) -> int:
        """Return the pid of its first process."""
        return self._pid()

    def make(self, side: str, upstream: str, enabled: bool) -> str:
        """Make a side of a link at the next port, or at its own; return its address (host:port)."""
        port = self._ports.setdefault(side, _FIRST + len(self._ports))
        self.control.create(side, upstream, listen=f"{_ANY}:{port}", enabled=enabled)
        return f"{self._host}:{port}"

    def asked_at(self, address: str) -> str:
        """Return where the harness finds a side, by the place's own way."""
        return self._asked_at(address)

    def carried(self) -> Mapping[str, int] | None:
        """Return None: Toxiproxy counts only connections that have ended."""
        return None

    def undone_by(self) -> Mapping[str, Any] | None:
        """It is removed with everything."""
        return None


class LinkRestart:
    """Implements `diloco_chaos.harness.places.capabilities.LinkServer`."""

    def __init__(self, links: RunLinks, restart: Callable[[], None]) -> None:
        """`restart`: the server, without any link, and wait until it answers."""
        self._links, self._restart = links, restart

    def restart_links(self) -> float:
        """The next one gets the links and their toxics again."""
        began = time.monotonic()
        with self._links.lock:
            self._restart()
            self._links.make_again()
        return time.monotonic() - began
