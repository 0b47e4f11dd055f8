"""The embedded link server: Toxiproxy's HTTP API on loopback, where the real toxiproxy-server isn't at hand.

Run as `python -m diloco_chaos.harness.links.server --port 0 --address-file PATH`. Requests are answered in the asyncio
loop that carries the traffic. The API has no authentication: what keeps web pages from driving it is that only local
Host and Origin headers are let in, and no browsers.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import re
import secrets
import signal
import sys
from email.message import Message
from functools import partial
from pathlib import Path

from diloco_chaos.harness.base.http_server import HttpServer, JsonHandler, StuckError
from diloco_chaos.harness.links.api import Answer, Api, ApiError, Text

_MAX_BODY = 64 * 1024
_MAX_DISCARD = 1024 * 1024  # up to here a body is read before it is refused, so that the refusal arrives
_IDLE_S = 15.0
_LOCAL = r"(localhost|127\.0\.0\.1|\[::1\])(:\d{1,5})?"


def refused(headers: Message) -> str | None:
    """Why a request with these headers isn't let in; None where it is."""
    if headers.get("User-Agent", "").startswith("Mozilla/"):
        return "User agent not allowed"
    hosts = headers.get_all("Host", [])
    if len(hosts) != 1 or not re.fullmatch(_LOCAL, hosts[0], re.IGNORECASE):
        return "Host not allowed: use 127.0.0.1 or localhost"
    origins = headers.get_all("Origin", [])
    if not all(re.fullmatch("https?://" + _LOCAL, origin, re.IGNORECASE) for origin in origins):
        return "Origin not allowed"
    return None


def body_length(headers: Message) -> int:
    """The length of the body.

    Raises:
        ApiError: it isn't told, can't be understood, or is too large.
    """
    if "Transfer-Encoding" in headers:
        raise ApiError(411, "a request body needs a Content-Length")
    lengths = headers.get_all("Content-Length", ["0"])
    if len(lengths) != 1 or not re.fullmatch(r"[0-9]{1,18}", lengths[0].strip()):
        raise ApiError(400, "Content-Length is not a number")
    return int(lengths[0])


class LinkServer(HttpServer):
    """The API's listening socket.

    Raises:
        OSError: the port is taken.
    """

    def __init__(self, port: int, api: Api) -> None:
        super().__init__("127.0.0.1", port, _Handler)
        self._api = api

    def answer(self, method: str, path: str, body: bytes) -> Answer:
        """The API's answer; called in a request's thread and made in the loop's.

        Raises:
            ApiError: the loop is stuck.
        """
        try:
            return self.in_loop(partial(self._api.handle, method, path, body))
        except StuckError as stuck:
            raise ApiError(503, str(stuck)) from None


class _Handler(JsonHandler):
    """One connection to the API."""

    server: LinkServer
    server_version = "diloco-chaos-links"
    timeout = _IDLE_S

    def _handle(self) -> None:
        try:
            body = self._body()
            if reason := refused(self.headers):
                raise ApiError(403, reason)
            answer = self.server.answer(self.command, self.path, body)
        except ApiError as error:
            answer = error.answer
        except TimeoutError:
            raise  # the rest of the request didn't come: BaseHTTPRequestHandler hangs up
        except Exception as error:
            self.refuse(500, f"internal error: {error!r}")
            raise
        self._answer(answer)

    do_GET = do_POST = do_PATCH = do_DELETE = do_PUT = do_HEAD = do_OPTIONS = _handle  # noqa: N815

    def _body(self) -> bytes:
        try:
            length = body_length(self.headers)
            if length > _MAX_BODY:
                if length <= _MAX_DISCARD:
                    self.rfile.read(length)
                raise ApiError(413, f"request body too large: at most {_MAX_BODY} bytes")
        except ApiError:
            self.close_connection = True  # what is left of the body must not be taken for the next request
            raise
        return self.rfile.read(length)

    def _answer(self, answer: Answer) -> None:
        status, content = answer
        known = {"X_Toxiproxy_Request_Id": secrets.token_hex(10)}
        if content is None:
            self.reply_with(status, b"", None, **known)
        elif isinstance(content, Text):
            self.reply_with(status, content.content.encode(), content.media_type, **known)
        else:
            self.reply(status, content, **known)

    def refuse(self, status: int, reason: str) -> None:
        """In Toxiproxy's form."""
        self._answer(ApiError(status, reason).answer)


async def _serve(port: int, address_file: Path | None, rng: random.Random, also: str) -> int:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    api = Api(rng, also)
    try:
        server = LinkServer(port, api)
    except OSError as error:
        print(f"can't listen on 127.0.0.1:{port}: {error.strerror}; choose another --port, 0 for a free one",
              file=sys.stderr)
        return 2
    if address_file is not None:
        _write_whole(address_file, "{}:{}".format(*server.server_address[:2]))
    await stop.wait()
    server.close()
    api.close()
    await asyncio.sleep(0)  # let the dropped connections close their sockets
    return 0


def _write_whole(path: Path, text: str) -> None:
    """Write a file that is complete from the moment it is seen."""
    unfinished = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    unfinished.write_text(text)
    unfinished.replace(path)


def _port(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,5}", text) or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port: use 0 (any free one) to 65535")
    return int(text)


def main(argv: list[str] | None = None) -> int:
    """Serve until SIGTERM or SIGINT; 0 then, 2 where the port is taken or the arguments are wrong."""
    parser = argparse.ArgumentParser(prog="python -m diloco_chaos.harness.links.server",
                                     description="The embedded link server")
    parser.add_argument("--port", type=_port, default=8474, help="on 127.0.0.1 (default 8474; 0: a free one)")
    parser.add_argument("--address-file", type=Path, help="file to write 127.0.0.1:PORT to when ready")
    parser.add_argument("--parent", type=int, help="process id of the starter, to end together with it")
    parser.add_argument("--listen-on", default="", metavar="IP",
                        help="an address of this machine that links may listen on besides loopback; the API does not")
    parser.add_argument("--seed", type=int, help="seed of jitter and toxicity (default: a new one each time)")
    args = parser.parse_args(argv)
    if args.parent is not None:
        from diloco_chaos.harness.base.parent_death import die_with_parent

        die_with_parent(args.parent)
    return asyncio.run(_serve(args.port, args.address_file, random.Random(args.seed), args.listen_on))


if __name__ == "__main__":
    sys.exit(main())
