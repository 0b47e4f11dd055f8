"""A small HTTP server in the running event loop: a node's health, and the links' API.

h11 parses the requests, and each is answered at once. A client that opens too many connections loses the oldest; a
client that neither sends nor reads for a while is disconnected.
"""

from __future__ import annotations

import asyncio
import json
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from email.utils import formatdate
from http import HTTPStatus

import h11

from diloco_chaos.harness.base.crowd import Crowd

_METHODS = {b"GET", b"HEAD", b"POST", b"PUT", b"PATCH", b"DELETE", b"OPTIONS"}
_MAX_BODY = 64 * 1024
_MAX_DISCARD = 1024 * 1024  # up to here a body is read before it is refused, so that the refusal arrives
_CHUNK = 64 * 1024


@dataclass(frozen=True)
class HttpRequest:
    """A whole request."""

    method: str
    path: str
    headers: list[tuple[bytes, bytes]]
    body: bytes

    def values(self, name: bytes) -> list[str]:
        """The values of each header field of this name, which is in lower case."""
        return [value.decode("latin-1") for key, value in self.headers if key == name]


@dataclass(frozen=True)
class Reply:
    """An answer; `Connection: close` among its headers ends the connection."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


def json_reply(status: int, content: object, **headers: str) -> Reply:
    """An answer in JSON; more headers by their names, `_` for `-`."""
    more = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply(status, json.dumps(content).encode() + b"\n", {"Content-Type": "application/json", **more})


def refusal(status: int, reason: str, **headers: str) -> Reply:
    """The last answer on a connection, which says why."""
    return json_reply(status, {"error": reason, "status": status}, Connection="close", **headers)


async def serve(host: str, port: int, answer: Callable[[HttpRequest], Reply], idle_s: float,
                most_open: int = 64) -> asyncio.Server:
    """Answer requests until the server is closed. A client has `idle_s` to send something, or to read its answer.

    Raises:
        OSError: the port is taken.
    """
    crowd = Crowd[asyncio.StreamWriter](most_open)

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if (oldest := crowd.enter(writer)) is not None:
            oldest.transport.abort()
        try:
            with suppress(ConnectionError, TimeoutError):
                await _Connection(reader, writer, answer, idle_s).converse()
        finally:
            crowd.leave(writer)
            writer.transport.abort()

    return await asyncio.start_server(connected, host, port, backlog=128)


class _Connection:
    """One client's requests."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter,
                 answer: Callable[[HttpRequest], Reply], idle_s: float) -> None:
        self._reader, self._writer, self._answer, self._idle_s = reader, writer, answer, idle_s
        self._http = h11.Connection(h11.SERVER)
        writer.transport.set_write_buffer_limits(0)  # drain() waits until all is sent

    async def converse(self) -> None:
        """Answer request after request, until either side ends the connection.

        Raises:
            ConnectionError: the client went away.
            TimeoutError: it neither sends nor reads.
        """
        while True:
            head = None
            try:
                head = await self._event()
                if not isinstance(head, h11.Request):
                    return
                reply = self._reply(await self._request(head))
            except h11.RemoteProtocolError as error:
                endless = error.error_status_hint == 431 and b"\n" not in self._http.trailing_data[0]
                reply = refusal(414 if endless else error.error_status_hint, str(error))
            await self._send(reply, isinstance(head, h11.Request) and head.method == b"HEAD")
            if self._http.our_state is not h11.DONE:
                return
            self._http.start_next_cycle()
            await asyncio.sleep(0)  # the loop's other tasks run between two requests that came together

    async def _event(self) -> object:
        """Return what comes next: a request's head, a part of its body, its end, or the connection's."""
        while (event := self._http.next_event()) is h11.NEED_DATA:
            if self._http.they_are_waiting_for_100_continue:
                self._writer.write(self._http.send(h11.InformationalResponse(status_code=100, headers=[])))
            async with asyncio.timeout(self._idle_s):
                self._http.receive_data(await self._reader.read(_CHUNK))
        return event

    async def _request(self, head: h11.Request) -> HttpRequest:
        """The request that begins with this head.

        Raises:
            RemoteProtocolError: it can't be answered, or is not HTTP.
        """
        headers, body = dict(head.headers), bytearray()
        if head.http_version not in (b"1.0", b"1.1"):
            raise h11.RemoteProtocolError("the version is not HTTP/1.1", 505)
        if head.method not in _METHODS:
            raise h11.RemoteProtocolError(f"unknown method {head.method.decode()}", 501)
        if b"transfer-encoding" in headers:
            raise h11.RemoteProtocolError("a request body needs a Content-Length", 411)
        length = int(headers.get(b"content-length", 0))
        if length <= _MAX_DISCARD:
            while isinstance(part := await self._event(), h11.Data):
                body += part.data
        if length > _MAX_BODY:
            raise h11.RemoteProtocolError(f"request body too large: at most {_MAX_BODY} bytes", 413)
        return HttpRequest(head.method.decode(), head.target.decode(), list(head.headers), bytes(body))

    def _reply(self, request: HttpRequest) -> Reply:
        try:
            return self._answer(request)
        except Exception as error:
            traceback.print_exc()
            return refusal(500, f"internal error: {error!r}")

    async def _send(self, reply: Reply, head_only: bool) -> None:
        headers = {"Server": "diloco-chaos", "Date": formatdate(usegmt=True), **reply.headers}
        if reply.status != 204:
            headers["Content-Length"] = str(len(reply.body))
        sent = self._http.send(h11.Response(status_code=reply.status, reason=HTTPStatus(reply.status).phrase,
                                            headers=list(headers.items())))
        if not head_only:
            sent += self._http.send(h11.Data(data=reply.body))
        self._writer.write(sent + self._http.send(h11.EndOfMessage()))
        async with asyncio.timeout(self._idle_s):
            await self._writer.drain()
