"""A small HTTP server beside a running event loop: a node's health, and the links' API.

Requests are read in a thread each and answered in the loop, so that no state is shared between threads. Whoever opens
more connections than there may be loses the oldest; whoever neither sends nor reads for a while is hung up on.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any, TypeVar

from diloco_chaos.harness.base.open_sockets import OpenSockets

ANSWER_S = 10.0
"""The loop has so long to answer."""
_Answer = TypeVar("_Answer")


class StuckError(Exception):
    """The loop does not answer."""


class HttpServer(ThreadingHTTPServer):
    """A listening socket whose requests come in from the running loop on.

    Raises:
        OSError: the port is taken.
    """

    most_open = 64
    """Connections, each of which has a thread."""
    request_queue_size = 128
    timeout = 0  # handle_request() is called when there is one, and must not wait for another

    def __init__(self, host: str, port: int, handler: type[JsonHandler]) -> None:
        super().__init__((host, port), handler)
        self._open = OpenSockets(self.most_open)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self.fileno(), self.handle_request)

    def server_bind(self) -> None:
        """Bind without HTTPServer's question to DNS for the host's name, which can take seconds."""
        TCPServer.server_bind(self)

    def process_request(self, request: Any, client_address: Any) -> None:
        """In a thread of its own."""
        self._open.enter(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """It was answered, or is lost."""
        self._open.leave(request)
        super().shutdown_request(request)

    def close(self) -> None:
        """Take no more requests."""
        self._loop.remove_reader(self.fileno())
        self.server_close()

    def in_loop(self, answer: Callable[[], _Answer]) -> _Answer:
        """What this returns where it is called in the loop; for a request's thread.

        Raises:
            StuckError: it was not called in time, or the loop has ended.
        """
        async def called() -> _Answer:
            return answer()
        asked = called()
        try:
            future = asyncio.run_coroutine_threadsafe(asked, self._loop)
        except RuntimeError:
            asked.close()
            raise StuckError("it is about to end") from None
        try:
            return future.result(ANSWER_S)
        except TimeoutError:
            future.cancel()
            raise StuckError(f"no answer within {ANSWER_S:.0f} s") from None

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away in mid-request is no news; any other error keeps its traceback."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class JsonHandler(BaseHTTPRequestHandler):
    """One connection; everything is answered in JSON, also what is no HTTP. `timeout`: see `StreamRequestHandler`."""

    protocol_version = "HTTP/1.1"
    server_version = "diloco-chaos"
    sys_version = ""

    def reply(self, status: int, content: object, **fields: str) -> None:
        """An answer in JSON; more fields of its head by their names, `_` for `-`."""
        self.reply_with(status, json.dumps(content).encode() + b"\n", "application/json", **fields)

    def reply_with(self, status: int, body: bytes, media_type: str | None, **fields: str) -> None:
        """An answer of any media type; None: it has no body at all."""
        self.send_response(status)
        for name, value in fields.items():
            self.send_header(name.replace("_", "-"), value)
        if media_type is not None:
            self.send_header("Content-Type", media_type)
        if status != 204:
            self.send_header("Content-Length", str(len(body)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def refuse(self, status: int, reason: str) -> None:
        """The answer to what can't be answered."""
        self.reply(status, {"error": reason})

    def parse_request(self) -> bool:
        """A request of HTTP/0.9 would have an answer without a status."""
        if not super().parse_request():
            return False
        if self.request_version == "HTTP/0.9":
            self.send_error(400, "the request has no version: HTTP/1.1")
            return False
        return True

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Called by the base class for what isn't HTTP."""
        self.close_connection = True
        self.request_version = self.protocol_version  # unknown yet: as HTTP/0.9 there'd be no status
        self.refuse(code, message or self.responses.get(code, ("error",))[0])

    def log_message(self, format: str, *args: Any) -> None:
        """Requests aren't logged: the tape says what happened."""
