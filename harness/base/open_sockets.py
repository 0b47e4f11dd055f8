"""Connections that others make, each of which costs a thread: only so many are open at the same time."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress


class OpenSockets:
    """Of more than `most` the oldest has to go: it is shut down, and whoever serves it sees its end and closes it. May
    be used from any thread."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._open: dict[socket.socket, None] = {}  # in the order in which they came
        self._guard = threading.Lock()

    def enter(self, connection: socket.socket) -> None:
        """Keep a connection that was accepted; where `most` are open, the oldest is shut down first."""
        with self._guard:
            if len(self._open) >= self._most:
                oldest = next(iter(self._open))
                del self._open[oldest]
                with suppress(OSError):  # it has hung up itself
                    oldest.shutdown(socket.SHUT_RDWR)
            self._open[connection] = None

    def leave(self, connection: socket.socket) -> None:
        """Forget a connection that is about to be closed, so that its descriptor, used again, is never shut down."""
        with self._guard:
            self._open.pop(connection, None)
