"""Catches connections that no command names: a small library, preloaded into a command, asks at every connect().

Ports that a trainer chooses while it runs are known to nobody beforehand: gloo's, a TCPStore's, gRPC's. Who listens on
one is looked up when somebody connects to it. What does not go through the C library's connect() is not caught:
programs that are linked statically, Go's, RDMA, shared memory.
"""

from __future__ import annotations

import os
import socket
import socketserver
import struct
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

from harness.cluster.base import ClusterError
from harness.core.programs import NO_COMPILER, compiler

_SOURCE = Path(__file__).with_name("catch.c")
_LIBRARY = "catch.so"
_CREDENTIALS = struct.Struct("3i")
_LONGEST = 256
_PATIENCE_S = 5.0
_BUILD_S = 60
Way = Callable[[str, str, int], int]
"""way(node, host, port): the port on loopback to which a node's connection is to go instead; 0: as it asked."""


class Catcher(socketserver.ThreadingUnixStreamServer):
    """Answers preloaded commands from when it is made until `close`. Its socket has a name and no file.

    Raises:
        ClusterError: the library could not be built.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, folder: Path, token: str, way: Way) -> None:
        """The library is built into `folder`. `token`: of the run, which names the socket. `way` is called in a
        thread of each connection; what it raises is in `failure`."""
        self.failure: Exception | None = None
        self._way, self._library, self._name = way, _built(folder), f"diloco-chaos-{token}"
        super().__init__(f"\0{self._name}", _Answer)
        self._thread = threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True, name="catcher")
        self._thread.start()

    def environment(self, preloaded: str) -> dict[str, str]:
        """What a command needs to be caught, beside its name. `preloaded`: what it would preload anyway."""
        return {"LD_PRELOAD": " ".join(filter(None, [str(self._library), preloaded])),
                "DILOCO_CHAOS_CATCHER": self._name}

    def port(self, node: str, host: str, port: int) -> int:
        """Where to, see `Way`; as asked where that can't be told."""
        try:
            return self._way(node, host, port)
        except Exception as error:
            self.failure = error
            return 0

    def close(self) -> None:
        """Answer nobody any more: connections go where they ask to."""
        self.shutdown()
        self.server_close()


class _Answer(socketserver.BaseRequestHandler):
    server: Catcher

    def handle(self) -> None:
        """One question, of a process of the same user: `NAME.NUMBER HOST PORT`."""
        peer = self.request.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        if _CREDENTIALS.unpack(peer)[1] != os.getuid():
            return
        self.request.settimeout(_PATIENCE_S)
        try:
            asked = self.request.recv(_LONGEST).decode("ascii", "replace").split()
            if len(asked) == 3 and asked[2].isdigit():
                answer = self.server.port(asked[0].rpartition(".")[0], asked[1], int(asked[2]))
                self.request.sendall(b"%d\n" % answer)
        except OSError:
            return  # who asked has died


def _built(folder: Path) -> Path:
    library = (folder / _LIBRARY).resolve()
    if any(mark in str(library) for mark in " :"):
        raise ClusterError(f"peers: caught: there is a space or a colon in {str(folder)!r}, and no library can be "
                           f"preloaded from there: run it in another one")
    if not compiler():
        raise ClusterError(NO_COMPILER)
    done = subprocess.run([compiler(), "-O2", "-shared", "-fPIC", "-o", str(library), str(_SOURCE), "-ldl"],
                          capture_output=True, text=True, timeout=_BUILD_S, check=False)
    if done.returncode != 0:
        raise ClusterError(f"peers: caught: {compiler()} could not build the library:\n{done.stderr.strip()}")
    return library
