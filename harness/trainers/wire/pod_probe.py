"""Answers and asks where the harness is not, beside the nodes.

    python -m diloco_chaos.harness.trainers.wire.pod_probe ECHO_PORT PROBE_PORT

Links are measured from where nodes are: what lies between the harness and them is no part of any link. One port is the
echo's, on the run's own network. The other one is on loopback, and takes questions, each a line of JSON, that are put
through a link.
"""

from __future__ import annotations

import json
import os
import socket
import socketserver
import sys
import threading
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from diloco_chaos.harness.base.processes import TOKEN
from diloco_chaos.harness.links.probe import PROBE_TIMEOUT_S, Sounding
from diloco_chaos.harness.trainers.wire.echo import EchoServer
from diloco_chaos.harness.trainers.wire.probe import probe
from diloco_chaos.harness.trainers.wire.token import matches

_LOOPBACK, _ANY = "127.0.0.1", "0.0.0.0"  # noqa: S104 - a pod's own network
_LONGEST_LINE = 4096
_ANSWER_S, _IDLE_S = 30.0, 3600.0


class ProbeServer(socketserver.ThreadingTCPServer):
    """Puts questions through links, for whoever has the token; from when it is made until `close`."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, token: str, port: int = 0) -> None:
        """`port`: on loopback, 0 for any."""
        super().__init__((_LOOPBACK, port), _Ask)
        self.token = token
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True, name="probes").start()

    def close(self) -> None:
        """Ask nothing more."""
        self.shutdown()
        self.server_close()


class _Ask(socketserver.StreamRequestHandler):
    server: ProbeServer
    timeout = _IDLE_S

    def handle(self) -> None:
        """Answer questions, one after the other, with what each probe measured."""
        try:
            while line := self.rfile.readline(_LONGEST_LINE):
                asked = json.loads(line)
                if not matches(str(asked["token"]), self.server.token):
                    return
                sounding = probe(str(asked["address"]), self.server.token, int(asked["reply_bytes"]),
                                 int(asked["send_bytes"]), watch_close=bool(asked["watch_close"]))
                self.wfile.write(json.dumps(asdict(sounding)).encode() + b"\n")
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return  # the harness is gone, or it never was the harness


class Beside:
    """Has questions put through links by a `ProbeServer`; may be used from any thread. Connections are kept: making one
    is work for the very machines that are measured."""

    def __init__(self, token: str, dial: Callable[[], socket.socket]) -> None:
        """`dial`: a connection to the server; raises where there is none."""
        self._token, self._dial = token, dial
        self._idle: list[socket.socket] = []
        self._lock = threading.Lock()

    def ask(self, address: str, **more: Any) -> Sounding:
        """Ask for one probe, and return what it measured.

        Args:
            address: host:port of the link, as nodes find it.
            more: see `diloco_chaos.harness.trainers.wire.probe.probe`.

        Raises:
            OSError: no pod answers.
        """
        with self._lock:
            kept = self._idle.pop() if self._idle else None
        question = json.dumps({"token": self._token, "address": address, **more}).encode() + b"\n"
        for connection in [*([kept] if kept else []), None]:  # one that was kept may be gone
            stream = connection or self._dial()
            try:
                line = _answered(stream, question)
            except OSError:
                stream.close()
                if connection is None:
                    raise
                continue
            with self._lock:
                self._idle.append(stream)
            return Sounding(**json.loads(line))
        raise ConnectionError("who asks beside the nodes has gone")

    def close(self) -> None:
        """Ask nothing more."""
        with self._lock:
            for connection in self._idle:
                connection.close()
            self._idle.clear()


def _answered(connection: socket.socket, question: bytes) -> bytes:
    """The line that comes back.

    Raises:
        OSError: none does.
    """
    connection.settimeout(_ANSWER_S + PROBE_TIMEOUT_S)
    connection.sendall(question)
    line = b""
    while not line.endswith(b"\n"):
        if not (data := connection.recv(_LONGEST_LINE)):
            raise ConnectionError("who asks beside the nodes has gone")
        line += data
    return line


def main() -> int:
    """Serve the echo and the probe until the process is ended."""
    echo_port, probe_port = map(int, sys.argv[1:3])
    echo = EchoServer(os.environ[TOKEN], _ANY, echo_port)
    ProbeServer(os.environ[TOKEN], probe_port)
    print(f"the echo is at {echo.address}", flush=True)
    threading.Event().wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
