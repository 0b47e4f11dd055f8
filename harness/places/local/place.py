"""Processes of this machine: no root, no engine, nothing but Python."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from diloco_chaos.harness.base.errors import nearest
from diloco_chaos.harness.places.base import EVERYWHERE, FROM_WITHIN, Ability
from diloco_chaos.harness.places.place import Option, OptionError, Part, Place, Requirement
from diloco_chaos.harness.preload.library import compiler

if TYPE_CHECKING:
    from diloco_chaos.harness.places.base import Recorder
    from diloco_chaos.harness.places.site import Site
    from diloco_chaos.harness.record.undo_log import UndoLog
    from diloco_chaos.harness.record.undos import Undo

LOOPBACK = "127.0.0.1"
FORKSERVER, SPAWN = "forkserver", "spawn"
EMBEDDED, REAL = "embedded", "real"
TOXIPROXY = Option("toxiproxy", "The proxy of the links between nodes: embedded (ours), real (the toxiproxy-server on "
                                "the PATH), or a path of one.", EMBEDDED)
TOXIPROXY_PORT = Option("toxiproxy_port", "Port of the link proxy's API, to inspect with toxiproxy-cli; 0: any free "
                                          "port.", 0, between=(0, 65535))
START_METHOD = Option("start_method", "How nodes start that are no commands: forkserver (forked from one process that "
                                      "has imported what they need), spawn (an interpreter each).", FORKSERVER)


class Local(Place):
    """See the module."""

    name = "local"
    nodes = "processes"
    can: ClassVar[frozenset[Ability]] = EVERYWHERE | FROM_WITHIN | {
        "signal_process", "signal_inner", "hang_inner", "press"}
    may: ClassVar[frozenset[Ability]] = frozenset({"corrupt_links"})
    unable = "processes alone can't do that"
    cannot: ClassVar[Mapping[Ability, str]] = {
        "corrupt_links": "the real Toxiproxy has no such toxic: leave --toxiproxy out for the embedded server"}
    alone: ClassVar[Mapping[Ability, str]] = {
        "signal_process": "the processes of a node can be told apart on this machine only",
        **dict.fromkeys(("signal_inner", "hang_inner"), "the processes of a node can't be told apart there"),
        "press": "pressure is put on this machine only",
        "corrupt_links": "only the embedded link server can turn over bits",
        **dict.fromkeys(FROM_WITHIN, "a library is preloaded into processes on this machine only"),
        **dict.fromkeys(("fail_calls", "hang", "cuda"), "no library is preloaded into processes there")}
    takes: ClassVar[frozenset[Part]] = frozenset({"peers: caught", "files", "left_behind: keep", "spare"})
    options = (TOXIPROXY, TOXIPROXY_PORT, START_METHOD)

    def __init__(self, links_port: int = 0, toxiproxy: str = "", forks: bool = True) -> None:
        """`links_port`: of Toxiproxy's API, 0 for any. `toxiproxy`: the real server's binary, empty for the embedded
        one. `forks`: nodes are forked from one process."""
        self._links_port, self._toxiproxy, self._forks = links_port, toxiproxy, forks

    @classmethod
    def chosen(cls, given: Mapping[str, Any]) -> Self:
        """Return this place with a port that is free, and a server that is there."""
        return cls(free(given.get("toxiproxy_port", 0)), _binary(given.get("toxiproxy", EMBEDDED)),
                   _forks(given.get("start_method", FORKSERVER)))

    @property
    def abilities(self) -> frozenset[Ability]:
        """Bits turn over on links of the embedded server only."""
        return self.can if self._toxiproxy else self.can | self.may

    def site(self, run: Path, record: Recorder, undo_log: UndoLog) -> Site:
        """Processes in this one's care."""
        from diloco_chaos.harness.places.local.site import LocalSite
        return LocalSite(run, record, undo_log, links_port=self._links_port, toxiproxy=self._toxiproxy,
                         forks=self._forks)

    @classmethod
    def requirements(cls, given: Mapping[str, Any]) -> list[Requirement]:
        """Return what only some runs use; nothing else is needed."""
        from diloco_chaos.harness.places.local.link_server import VARIABLE
        server = os.environ.get(VARIABLE) or shutil.which("toxiproxy-server")
        return [Requirement("toxiproxy-server", "ok", server) if server else
                Requirement("toxiproxy-server", "optional", "not installed", "not needed: links are embedded on local"),
                Requirement("C compiler", "ok", compiler()) if compiler() else
                Requirement("C compiler", "optional", "not installed",
                            "only for `io`, `hang`, `cuda`, `lose_unsynced`, and `peers: caught`, of a trainer of "
                            "commands")]

    @classmethod
    def undos(cls) -> tuple[type[Undo], ...]:
        """Return the undos of links beside the harness, which other places have, too, of calls that fail, and of
        pressure."""
        from diloco_chaos.harness.places.links.undos import Enable, Toxin
        from diloco_chaos.harness.places.local.undos import Disarm, DisarmCuda, EndPressure, Release
        return Toxin, Enable, Disarm, Release, DisarmCuda, EndPressure


def free(port: int) -> int:
    """A port of the link proxy's API, which nobody has.

    Raises:
        OptionError: somebody has it.
    """
    try:
        socket.create_server((LOOPBACK, port)).close()
    except OSError as error:
        raise OptionError(f"--toxiproxy-port {port}: {os.strerror(error.errno or 0)}; choose another one, or leave it "
                          f"out for any") from error
    return port


def _forks(choice: str) -> bool:
    methods = FORKSERVER, SPAWN
    if choice not in methods:
        raise OptionError(f"--start-method {choice}: {' or '.join(methods)}{nearest(choice, methods)}")
    return choice == FORKSERVER


def _binary(choice: str) -> str:
    """The real server's; empty for the embedded one."""
    from diloco_chaos.harness.places.base import ClusterError
    from diloco_chaos.harness.places.local.link_server import real_server
    if choice == EMBEDDED:
        return ""
    if choice != REAL and "/" not in choice:
        raise OptionError(f"--toxiproxy {choice}: {EMBEDDED}, {REAL}, or a path such as ./toxiproxy-server"
                          f"{nearest(choice, [EMBEDDED, REAL])}")
    try:
        return real_server("" if choice == REAL else choice)
    except ClusterError as error:
        raise OptionError(f"--toxiproxy {choice}: {error}") from error
