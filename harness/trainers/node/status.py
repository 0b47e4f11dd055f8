"""What a node answers when it is asked how it is: `GET /health` and `GET /status`, JSON over HTTP.

`python -m diloco_chaos.harness.trainers.node.status` asks the node in the same container; its exit status is a health
check.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import sys
import urllib.request
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from diloco_chaos.harness.base.http_server import HttpRequest, Reply, json_reply, refusal, serve

PORT = 8080
Status = Mapping[str, Any]
_IDLE_S = 5.0
_MOST_OPEN = 8


async def serve_status(host: str, port: int, status: Callable[[], Status]) -> asyncio.Server:
    """Answer until the server is closed. `status`: everything that is known, `healthy` among it.

    Raises:
        OSError: the port can't be bound.
    """
    return await serve(host, port, partial(_reply, status), _IDLE_S, _MOST_OPEN)


def _reply(status: Callable[[], Status], request: HttpRequest) -> Reply:
    """The answer to one question; 503 for a node that is not well."""
    path = request.path.partition("?")[0]
    if request.method not in ("GET", "HEAD"):
        return refusal(405, "ask with GET", Allow="GET, HEAD")
    if path not in ("/health", "/status"):
        return refusal(404, "ask for /health or /status")
    known = status()
    if path == "/status":
        return json_reply(200, known, Connection="close")
    return json_reply(200 if known["healthy"] else 503, {"healthy": known["healthy"]}, Connection="close")


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
