"""A question through a link, to measure what the link does to it."""

from __future__ import annotations

import socket
import time

from harness.trainer.messages import Echo, Probe
from harness.trainer.wire import Decoder, FrameError, encode

_CHUNK = 1 << 18


def probe(address: str, token: str, reply_bytes: int = 0, timeout_s: float = 2.0) -> float:
    """Ask a syncer for an echo of so many bytes through `address` (host:port).

    Returns:
        Seconds from the question to the end of the answer; the connection is made before.

    Raises:
        OSError: no connection, no answer in time, or something else than an answer.
    """
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout_s) as link:
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        began = time.monotonic()
        link.sendall(encode(Probe(token=token, reply_bytes=reply_bytes)))
        decoder = Decoder()
        while data := link.recv(_CHUNK):
            try:
                for message, _ in decoder.feed(data):
                    if isinstance(message, Echo):
                        return time.monotonic() - began
                    raise ConnectionError(f"{address} answered {message.type}, not echo")
            except FrameError as error:
                raise ConnectionError(f"{address}: {error}") from error
        raise ConnectionError(f"{address} closed without an answer")
