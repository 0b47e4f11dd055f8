"""A port of this machine that leads to one on a pod's loopback: each connection goes by way of the API server."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress

from diloco_chaos.harness.base.crowd import OpenSockets

_CHUNK = 1 << 16
_LOOPBACK = "127.0.0.1"
_MOST_OPEN = 64
"""Connections, each of which has two threads; then the oldest has to go. All who are on this machine can reach it."""


class Forward:
    """Listens from when it is made until `close`."""

    def __init__(self, dial: Callable[[], socket.socket]) -> None:
        """`dial`: a connection to where it leads."""
        self._dial = dial
        self._server = socket.create_server((_LOOPBACK, 0))
        self.address = f"{_LOOPBACK}:{self._server.getsockname()[1]}"
        self._open, self._over = OpenSockets(_MOST_OPEN), False
        threading.Thread(target=self._accept, daemon=True, name=f"forward {self.address}").start()

    def close(self) -> None:
        """Take no more connections."""
        self._over = True
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()

    def _accept(self) -> None:
        while not self._over:
            try:
                here, _ = self._server.accept()
            except OSError:
                return
            self._open.enter(here)
            threading.Thread(target=self._carry, args=(here,), daemon=True, name=f"forwarded {self.address}").start()

    def _carry(self, here: socket.socket) -> None:
        """One connection, to its end on either side."""
        try:
            with suppress(Exception):  # nobody is there, in whatever words the API server says so
                self._carry_to(self._dial(), here)
        finally:
            self._open.leave(here)
            here.close()

    @staticmethod
    def _carry_to(remote: socket.socket, local: socket.socket) -> None:
        back = threading.Thread(target=_pump, args=(remote, local), daemon=True)
        back.start()
        _pump(local, remote)
        back.join()
        remote.close()


def _pump(source: socket.socket, target: socket.socket) -> None:
    """Copy bytes until the source ends; then shut both down."""
    with suppress(OSError):
        while data := source.recv(_CHUNK):
            target.sendall(data)
    for side in (source, target):
        with suppress(OSError):
            side.shutdown(socket.SHUT_RDWR)
