"""What a node answers when it is asked how it is: `GET /health` and `GET /status`, JSON over HTTP.

`python -m diloco_chaos.harness.trainers.node.status` asks the node in the same container; its exit status is a health
check.
"""

from __future__ import annotations

import argparse
import http.client
import sys
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any

from diloco_chaos.harness.base.http_server import HttpServer, JsonHandler, StuckError

PORT = 8080
Status = Mapping[str, Any]
_IDLE_S = 5.0


class StatusServer(HttpServer):
    """Answers until it is closed. `status`: everything that is known, `healthy` among it.

    Raises:
        OSError: the port can't be bound.
    """

    most_open = 8

    def __init__(self, host: str, port: int, status: Callable[[], Status]) -> None:
        super().__init__(host, port, _Handler)
        self.status = status


class _Handler(JsonHandler):
    """One question; 503 for a node that is not well, or does not answer."""

    server: StatusServer
    server_version = "diloco-chaos-node"
    timeout = _IDLE_S

    def do_GET(self) -> None:  # noqa: N802
        """The answer to GET and HEAD."""
        self.close_connection = True
        path = self.path.partition("?")[0]
        if path not in ("/health", "/status"):
            return self.refuse(404, "ask for /health or /status")
        try:
            status = self.server.in_loop(self.server.status)
        except StuckError as stuck:
            return self.refuse(503, str(stuck))
        if path == "/status":
            return self.reply(200, status)
        return self.reply(200 if status["healthy"] else 503, {"healthy": status["healthy"]})

    def _not_allowed(self) -> None:
        self.close_connection = True
        self.reply(405, {"error": "ask with GET"}, Allow="GET, HEAD")

    do_HEAD = do_GET  # noqa: N815
    do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = _not_allowed  # noqa: N815


def main(arguments: list[str] | None = None) -> int:
    """Ask; 0 where the node is well, 1 where it is not, or does not answer."""
    parser = argparse.ArgumentParser(prog="python -m diloco_chaos.harness.trainers.node.status", description=__doc__)
    parser.add_argument("question", nargs="?", choices=["health", "status"], default="health")
    parser.add_argument("--port", type=int, default=PORT)
    options = parser.parse_args(arguments)
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{options.port}/{options.question}", timeout=_IDLE_S) as reply:
            print(reply.read().decode(), end="")
    except (OSError, http.client.HTTPException) as error:
        print(f"this node does not say that it is well: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
