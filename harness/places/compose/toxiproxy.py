"""The real Toxiproxy in a container of its own, between every learner and the syncer."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

from docker.errors import NotFound

from diloco_chaos.harness.links.client import LinkError, Links
from diloco_chaos.harness.places.base import ClusterError
from diloco_chaos.harness.places.compose.engine import EngineError, asked
from diloco_chaos.harness.places.compose.outside import Outside
from diloco_chaos.harness.places.compose.project import OUTSIDE, TRAINING, Project, tail
from diloco_chaos.harness.places.local.link_server import START_TIMEOUT_S, free_port
from diloco_chaos.harness.trainers.core.programs import LINKS

_API = 8474
_TRIES = 3
_TAKEN = ("port is already allocated", "address already in use")


class Toxiproxy:
    """See the module."""

    def __init__(self, project: Project, outside: Outside) -> None:
        self._project, self._outside = project, outside
        self._container: Any = None
        self._links: Links | None = None
        self.host, self.inside = "", ""
        """Its address outside, where probes go, and the one that nodes know."""

    def begin(self, port: int) -> None:
        """Start it. `port`: of the API on 127.0.0.1, 0 for any.

        Raises:
            EngineError: it does not start, or the port is taken.
        """
        self._container, port = self._started(port)
        self._links = Links(f"127.0.0.1:{port}")
        self.host, self.inside = self._ready(self._links)

    @property
    def links(self) -> Links:
        """Return the client of its API.

        Raises:
            ClusterError: it was not started.
        """
        if self._links is None:
            raise ClusterError("the links are not up yet")
        return self._links

    def pid(self) -> int:
        """Return the pid of its first process, on this machine; 0 where that is not known."""
        return int(self._container.attrs["State"]["Pid"]) if self._container is not None else 0

    def restart(self) -> None:
        """Restart it; its links were in its memory only."""
        with asked("restart Toxiproxy"):
            self._container.restart(timeout=0)
        self.host, self.inside = self._ready(self.links)

    def must_live(self) -> None:
        """Raises where it has ended, and not by our own restart, of which the engine may tell late.

        Raises:
            ClusterError: it has.
        """
        if self._container is None or self._outside.watch.exits.pop(self.id, None) is None or self.runs():
            return
        self._outside.must_have_ended_by_itself(LINKS, self.id)
        raise ClusterError(f"Toxiproxy died on its own:\n{self.last_lines()}")

    @property
    def id(self) -> str:
        """Return the container's id."""
        return str(self._container.id)

    def runs(self) -> bool:
        """Return whether it runs, as the engine says now; one that was removed does not."""
        with asked("look at Toxiproxy"), suppress(NotFound):
            self._container.reload()
            return bool(self._container.status == "running")
        return False

    def last_lines(self) -> str:
        """The end of its log."""
        return tail(self._container)

    def _started(self, wanted: int) -> tuple[Any, int]:
        """It gets a port that is free now; another one where somebody was quicker, unless the user named it."""
        for attempt in range(_TRIES):
            port = wanted or free_port()
            try:
                return self._project.container(
                    LINKS, f"{LINKS}-{attempt}", self._project.stated(LINKS), ["/toxiproxy", "-host=0.0.0.0"],
                    networks=(TRAINING, OUTSIDE), ports={f"{_API}/tcp": ("127.0.0.1", port)}), port
            except EngineError as error:
                if not any(words in str(error) for words in _TAKEN):
                    raise
                if wanted:
                    break
        raise EngineError(f"port {port} on 127.0.0.1 is taken: choose another one with --toxiproxy-port, or leave it "
                          f"out for any")

    def _ready(self, links: Links) -> tuple[str, str]:
        """Wait until the API answers; the container's addresses, outside and among the nodes."""
        until = time.monotonic() + START_TIMEOUT_S
        while True:
            try:
                links.version()
                break
            except LinkError as error:
                if time.monotonic() > until or (self.id in self._outside.watch.exits and not self.runs()):
                    raise EngineError(f"Toxiproxy did not start:\n{self.last_lines()}") from error
                time.sleep(0.01)
        with asked("look at Toxiproxy"):
            self._container.reload()
        attached = self._container.attrs["NetworkSettings"]["Networks"]
        outside, inside = (attached[self._project.networks[name].name]["IPAddress"] for name in (OUTSIDE, TRAINING))
        return str(outside), str(inside)
