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
from functools import partial
from pathlib import Path

from diloco_chaos.harness.base.http_server import HttpRequest, Reply, json_reply, serve
from diloco_chaos.harness.links.api import ApiError, LinksApi, Text

_IDLE_S = 15.0
_LOCAL = r"(localhost|127\.0\.0\.1|\[::1\])(:\d{1,5})?"


def refused(request: HttpRequest) -> str | None:
    """Return why this request isn't let in; None where it is."""
    if any(agent.startswith("Mozilla/") for agent in request.values(b"user-agent")):
        return "User agent not allowed"
    if not all(re.fullmatch(_LOCAL, host, re.IGNORECASE) for host in request.values(b"host") or [""]):
        return "Host not allowed: use 127.0.0.1 or localhost"
    if not all(re.fullmatch("https?://" + _LOCAL, origin, re.IGNORECASE) for origin in request.values(b"origin")):
        return "Origin not allowed"
    return None


def _reply(api: LinksApi, request: HttpRequest) -> Reply:
    reason = refused(request)
    status, content = ApiError(403, reason).answer if reason else api.handle(request.method, request.path, request.body)
    known = {"X-Toxiproxy-Request-Id": secrets.token_hex(10)}
    if content is None:
        return Reply(status, headers=known)
    if isinstance(content, Text):
        return Reply(status, content.content.encode(), {"Content-Type": content.media_type, **known})
    return json_reply(status, content, **known)


async def _serve(port: int, address_file: Path | None, rng: random.Random, also: str) -> int:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    api = LinksApi(rng, also)
    try:
        server = await serve("127.0.0.1", port, partial(_reply, api), _IDLE_S)
    except OSError as error:
        print(f"can't listen on 127.0.0.1:{port}: {os.strerror(error.errno or 0)}; "
              "choose another --port, 0 for a free one", file=sys.stderr)
        return 2
    if address_file is not None:
        _write_whole(address_file, "{}:{}".format(*server.sockets[0].getsockname()))
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
