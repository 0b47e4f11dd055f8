"""Connections that others make, each of which costs something: of more than there may be the oldest has to go."""

from __future__ import annotations

import socket
import threading
from collections.abc import Hashable
from contextlib import suppress
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


class Crowd(Generic[T]):
    """The open connections, the oldest first. Pure."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._open: dict[T, None] = {}

    def enter(self, connection: T) -> T | None:
        """Keep one more; return the one that has to go for it, which is forgotten."""
        self._open[connection] = None
        if len(self._open) <= self._most:
            return None
        oldest = next(iter(self._open))
        del self._open[oldest]
        return oldest

    def leave(self, connection: T) -> None:
        """Forget one that was let in for good, or is gone."""
        self._open.pop(connection, None)


class OpenSockets:
    """A crowd of sockets that have a thread each. The oldest is shut down: its thread sees its end and closes it. May
    be used from any thread."""

    def __init__(self, most: int) -> None:
        self._crowd = Crowd[socket.socket](most)
        self._guard = threading.Lock()

    def enter(self, connection: socket.socket) -> None:
        """Keep a connection that was accepted; where `most` are open, shut the oldest down."""
        with self._guard, suppress(OSError):  # it has hung up itself
            if (oldest := self._crowd.enter(connection)) is not None:
                oldest.shutdown(socket.SHUT_RDWR)

    def leave(self, connection: socket.socket) -> None:
        """Forget a connection that is about to be closed, so that its descriptor, used again, is never shut down."""
        with self._guard:
            self._crowd.leave(connection)
