"""Answers and asks where the harness is not, beside the nodes: `python -m harness.wire.beside ECHO_PORT PROBE_PORT`.

Links are measured from where nodes are: what lies between the harness and them is no part of any link. One port is the
echo's, on the run's own network. The other one is on loopback, and takes questions, each a line of JSON, that are put
through a link.
"""

from __future__ import annotations

import hmac
import json
import os
import socket
import socketserver
import sys
import threading
from dataclasses import asdict
from typing import Any

from harness.cleanup.processes import TOKEN
from harness.links.probe import PROBE_TIMEOUT_S, Sounding
from harness.wire.echo import EchoServer
from harness.wire.probe import probe

_LOOPBACK, _ANY = "127.0.0.1", "0.0.0.0"  # noqa: S104 - a pod's own network
_LONGEST_LINE = 4096
_ANSWER_S = 30.0


class ProbeServer(socketserver.ThreadingTCPServer):
    """Puts questions through links, for whoever has the token; from when it is made until `close`."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, token: str, port: int = 0) -> None:
        """`port`: on loopback, 0 for any."""
        super().__init__((_LOOPBACK, port), _Ask)
        self.token = token
        threading.Thread(target=self.serve_forever, daemon=True, name="probes").start()

    def close(self) -> None:
        """Ask nothing more."""
        self.shutdown()
        self.server_close()


class _Ask(socketserver.StreamRequestHandler):
    server: ProbeServer
    timeout = _ANSWER_S

    def handle(self) -> None:
        """One question, and what came of it."""
        try:
            asked = json.loads(self.rfile.readline(_LONGEST_LINE))
            if hmac.compare_digest(str(asked["token"]), self.server.token):
                found = probe(str(asked["address"]), self.server.token, int(asked["reply_bytes"]),
                              int(asked["send_bytes"]), watch_close=bool(asked["watch_close"]))
                self.wfile.write(json.dumps(asdict(found)).encode() + b"\n")
        except (OSError, ValueError, KeyError, TypeError):
            return  # the harness is gone, or it never was the harness


def ask_beside(connection: socket.socket, token: str, address: str, **more: Any) -> Sounding:
    """Have a question put through a link by a `ProbeServer` at the other end of this connection.

    Args:
        connection: closed when this returns.
        token: the run's.
        address: host:port of the link, as nodes find it.
        more: see `harness.wire.probe.probe`.

    Raises:
        OSError: nobody answers there.
    """
    connection.settimeout(_ANSWER_S + PROBE_TIMEOUT_S)
    with connection, connection.makefile("rb") as answers:
        connection.sendall(json.dumps({"token": token, "address": address, **more}).encode() + b"\n")
        line = answers.readline(_LONGEST_LINE)
    if not line:
        raise ConnectionError("who asks beside the nodes has gone")
    return Sounding(**json.loads(line))


def main() -> int:
    """Until it is ended."""
    echo_port, probe_port = map(int, sys.argv[1:3])
    echo = EchoServer(os.environ[TOKEN], _ANY, echo_port)
    ProbeServer(os.environ[TOKEN], probe_port)
    print(f"the echo is at {echo.address}", flush=True)
    threading.Event().wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
