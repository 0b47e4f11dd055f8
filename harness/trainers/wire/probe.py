"""A question through a link, to measure what the link does to it."""

from __future__ import annotations

import socket
import time

import numpy as np

from diloco_chaos.harness.links.probe import PROBE_TIMEOUT_S, Sounding
from diloco_chaos.harness.trainers.wire.frames import Decoder, FrameError, encode
from diloco_chaos.harness.trainers.wire.messages import SHARED, Echo, Probe

_CHUNK = 1 << 18
_CLOSING_S = 10.0
"""An end that was held back comes late, and once more where it is on the way back, too."""


def probe(address: str, token: str, reply_bytes: int = 0, send_bytes: int = 0, *, watch_close: bool = False,
          timeout_s: float = PROBE_TIMEOUT_S) -> Sounding:
    """Ask a syncer for an echo of `reply_bytes` through `address` (host:port), in a question of `send_bytes` more."""
    host, _, port = address.rpartition(":")
    question = encode(Probe(token=token, reply_bytes=reply_bytes), _filling(send_bytes))
    try:
        link = socket.create_connection((host, int(port)), timeout_s)
    except TimeoutError:
        return Sounding("silent")
    except ConnectionResetError:
        return Sounding("reset")
    except OSError:
        return Sounding("refused")
    with link:
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        began = time.monotonic()
        sounding = _asked(link, question, began)
        if not (watch_close and sounding.answered):
            return sounding
        return Sounding(sounding.end, sounding.seconds, sounding.received, _closing(link))


def _asked(link: socket.socket, question: bytes, began: float) -> Sounding:
    received, decoder = 0, Decoder(SHARED)
    try:
        link.sendall(question)
        while data := link.recv(_CHUNK):
            received += len(data)
            if any(isinstance(message, Echo) for message, _ in decoder.feed(data)):
                return Sounding("answered", time.monotonic() - began, received)
    except TimeoutError:
        return Sounding("silent", time.monotonic() - began, received)
    except (ConnectionResetError, BrokenPipeError):
        return Sounding("reset", time.monotonic() - began, received)
    except (OSError, FrameError):
        pass  # whoever answered was no syncer of ours: as good as closed
    return Sounding("closed", time.monotonic() - began, received)


def _closing(link: socket.socket) -> float | None:
    began = time.monotonic()
    link.settimeout(_CLOSING_S)
    try:
        link.shutdown(socket.SHUT_WR)
        while link.recv(_CHUNK):
            pass
    except OSError:
        return None
    return time.monotonic() - began


def _filling(size: int) -> dict[str, np.ndarray[tuple[int], np.dtype[np.float32]]] | None:
    return {"filling": np.zeros(size // 4, np.float32)} if size else None
