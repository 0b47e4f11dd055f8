"""Catches connections that no command names: a small library, preloaded into a command, asks at every connect().

Ports that a trainer chooses while it runs are known to nobody beforehand: gloo's, a TCPStore's, gRPC's. Who listens on
one is looked up when somebody connects to it. What does not go through the C library's connect() is not caught:
programs that are linked statically, Go's, RDMA, shared memory.
"""

from __future__ import annotations

import os
import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from diloco_chaos.harness.base.processes import TOKEN
from diloco_chaos.harness.places.base import ClusterError
from diloco_chaos.harness.preload.library import PreloadError, built, must_be_preloadable, preloading
from diloco_chaos.harness.trainers.wire.token import matches

_SOCKET = "catch.sock"
_WHAT = "peers: caught"
_LONGEST = 512
"""Bytes of a question."""
_PATIENCE_S = 5.0
Way = Callable[[str, str, int], str]
"""way(node, host, port): HOST:PORT, of version 4, to which a node's connection is to go instead; empty: as it asked."""


class Catcher(socketserver.ThreadingUnixStreamServer):
    """Answers preloaded commands from when it is made until `close`.

    Raises:
        ClusterError: the library could not be built.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, folder: Path, token: str, way: Way, *, mounted_at: str = "") -> None:
        """The library is built into `folder`. `token`: the run's, which every request must carry. `way` is called in a
        thread of each connection; what it raises is in `failure`. `mounted_at`: where containers find `folder`: the
        socket is a file in it then; empty: the socket has an abstract name on this machine.

        Raises:
            ClusterError: the library can't be built, or not preloaded from this folder.
        """
        self.failure: Exception | None = None
        self.loaded: set[str] = set()
        """Nodes that have loaded the library: with a socket that is a file they say so."""
        self._way, self._token = way, token
        try:
            if not mounted_at:
                must_be_preloadable(folder, _WHAT)
            library = built(folder, "connect", _WHAT)
        except PreloadError as error:
            raise ClusterError(str(error)) from error
        self._file = library.with_name(_SOCKET) if mounted_at else None
        self._library, self._name = (f"{mounted_at}/{library.name}", f"{mounted_at}/{_SOCKET}") if mounted_at else (
            str(library), f"diloco-chaos-{token}")
        with _short(library.parent) as short:
            super().__init__(f"{short}/{_SOCKET}" if mounted_at else f"\0{self._name}", _Answer)
        if self._file:
            self._file.chmod(0o666)  # requests from a container come from another user; the token is what counts
        self._thread = threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True, name="catcher")
        self._thread.start()

    def environment(self, preloaded: str) -> dict[str, str]:
        """Return the environment variables that a command needs to be caught, beside its name. `preloaded`: what it
        would preload anyway."""
        return {**preloading(self._library, preloaded), "DILOCO_CHAOS_CATCHER": self._name, TOKEN: self._token}

    def answered(self, token: str, node: str, host: str, port: int) -> str:
        """Return where the connection is to go, see `Way`; empty, as asked, where that can't be found out, or where a
        stranger asks."""
        if not matches(token, self._token):
            return ""
        if host == "-":
            self.loaded.add(node)
            return ""
        try:
            return self._way(node, host, port)
        except Exception as error:
            self.failure = error
            return ""

    def close(self) -> None:
        """Answer nobody any more: connections go where they ask to."""
        self.shutdown()
        self.server_close()
        if self._file:
            with suppress(OSError):
                self._file.unlink()


class _Answer(socketserver.BaseRequestHandler):
    server: Catcher

    def handle(self) -> None:
        """One question: `TOKEN NAME.NUMBER HOST PORT`."""
        self.request.settimeout(_PATIENCE_S)
        try:
            asked = self.request.recv(_LONGEST).decode("ascii", "replace").split()
            if len(asked) == 4 and asked[3].isdigit():
                answer = self.server.answered(asked[0], asked[1].rpartition(".")[0], asked[2], int(asked[3]))
                self.request.sendall(f"{answer}\n".encode())
        except OSError:
            return  # who asked has died, or asked nothing


@contextmanager
def _short(folder: Path) -> Iterator[str]:
    """Yield another name for a folder: that of a socket's file has 107 characters at the most."""
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{opened}"
    finally:
        os.close(opened)
