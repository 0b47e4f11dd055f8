"""What a node answers when it is asked how it is: `GET /health` and `GET /status`, JSON over HTTP.

`python -m harness.node.status` asks the node in the same container; its exit status is a health check.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import sys
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any

PORT = 8080
Status = Mapping[str, Any]
_REQUEST_S, _MOST_BYTES = 5.0, 8192


async def serve_status(host: str, port: int, status: Callable[[], Status]) -> asyncio.Server:
    """Answer until the server is closed. `status`: everything that is known, `healthy` among it.

    Raises:
        OSError: the port can't be bound.
    """
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), _REQUEST_S)
            writer.write(_response(head, status()))
            await asyncio.wait_for(writer.drain(), _REQUEST_S)
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError):
            pass  # whoever asked does not wait for an answer any more, or sent what is no request
        finally:
            writer.close()
    return await asyncio.start_server(answer, host, port, limit=_MOST_BYTES)


def _response(head: bytes, status: Status) -> bytes:
    """The whole answer to a request's head (RFC 9112); 503 for a node that is not well."""
    line = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
    method, path = (line[0], line[1].partition("?")[0]) if len(line) == 3 else ("", "")
    content: Status = {"healthy": status["healthy"]}
    code = "200 OK" if status["healthy"] else "503 Service Unavailable"
    if method not in ("GET", "HEAD"):
        code, content = "405 Method Not Allowed", {"error": "ask with GET"}
    elif path == "/status":
        code, content = "200 OK", status
    elif path != "/health":
        code, content = "404 Not Found", {"error": "ask for /health or /status"}
    body = json.dumps(content, indent=2).encode() + b"\n"
    allow = "Allow: GET, HEAD\r\n" if code.startswith("405") else ""
    shown = b"" if method == "HEAD" else body
    return (f"HTTP/1.1 {code}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
            f"{allow}Connection: close\r\n\r\n").encode() + shown


def main(arguments: list[str] | None = None) -> int:
    """Ask; 0 where the node is well, 1 where it is not, or does not answer."""
    parser = argparse.ArgumentParser(prog="python -m harness.node.status", description=__doc__)
    parser.add_argument("question", nargs="?", choices=["health", "status"], default="health")
    parser.add_argument("--port", type=int, default=PORT)
    options = parser.parse_args(arguments)
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{options.port}/{options.question}", timeout=_REQUEST_S) as reply:
            print(reply.read().decode(), end="")
    except (OSError, http.client.HTTPException) as error:
        print(f"this node does not say that it is well: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
