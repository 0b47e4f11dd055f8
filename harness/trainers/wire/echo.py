"""Answers questions through links: for what stands behind a link and speaks another language."""

from __future__ import annotations

import socketserver
import threading

import numpy as np

from diloco_chaos.harness.trainers.wire.frames import Decoder, FrameError, encode
from diloco_chaos.harness.trainers.wire.messages import SHARED, Echo, Probe
from diloco_chaos.harness.trainers.wire.token import matches

_CHUNK = 1 << 18
_IDLE_S = 30.0


class EchoServer(socketserver.ThreadingTCPServer):
    """Listens from when it is made until `close`; see `diloco_chaos.harness.trainers.wire.probe.probe` for who asks."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, token: str, host: str = "127.0.0.1", port: int = 0) -> None:
        """`token`: of the run; nobody else is answered. `host`: loopback, or this machine on an internal network.
        `port`: 0 for any."""
        super().__init__((host, port), _Answer)
        self.token = token
        self._thread = threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True, name="echo")
        self._thread.start()

    @property
    def address(self) -> str:
        """host:port."""
        host, port = self.server_address[:2]
        return f"{host!s}:{port}"

    def close(self) -> None:
        """Answer nobody any more."""
        self.shutdown()
        self.server_close()


class _Answer(socketserver.BaseRequestHandler):
    server: EchoServer

    def handle(self) -> None:
        """Answer probes until the other side ends the connection."""
        decoder = Decoder(SHARED)
        self.request.settimeout(_IDLE_S)
        try:
            while data := self.request.recv(_CHUNK):
                for message, _ in decoder.feed(data):
                    if not (isinstance(message, Probe) and matches(message.token, self.server.token)):
                        return
                    size = message.reply_bytes // 4
                    self.request.sendall(encode(Echo(), {"filling": np.zeros(size, np.float32)} if size else None))
        except (OSError, FrameError):
            return  # a link was reset, or somebody else has come this way
