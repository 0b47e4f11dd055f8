"""The embedded link server beside the real toxiproxy-server, interleaved: rate, added delay, how exact a toxic is."""

from __future__ import annotations

import os
import selectors
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

from diloco_chaos.harness.links.client import Links
from diloco_chaos.harness.links.toxic import Toxic
from diloco_chaos.harness.places.base import ClusterError
from diloco_chaos.harness.places.local.link_server import LocalLinkServer, real_server

ROUNDS = 5
_BYTES = 100_000_000
_TRIPS = 400
_DELAY_MS, _RATE_KB = 20, 5000
_TURNS = 3
_LOAD, _MESSAGE, _MESSAGES_S, _CONNECTIONS = 60_000_000, b"x" * 64, 0.4, 64
_TOXICS: dict[str, Toxic | None] = {
    "none": None,
    "noop": Toxic("noop", "upstream", {}),
    "latency 10 ms": Toxic("latency", "upstream", {"latency": 10}),
    "latency 100 ms": Toxic("latency", "upstream", {"latency": 100}),
    "bandwidth 1 GB/s": Toxic("bandwidth", "upstream", {"rate": 1_000_000}),
    "slicer 32 KB": Toxic("slicer", "upstream", {"average_size": 32_768, "size_variation": 1024}),
    "slow_close": Toxic("slow_close", "upstream", {"delay": 100}),
    "limit_data": Toxic("limit_data", "upstream", {"bytes": 1 << 40})}


def measure(say: Callable[[str], None]) -> dict[str, Any]:
    """Every figure for both servers and for no server at all, in turns; an error where the real one is not there."""
    try:
        real = real_server()
    except ClusterError as error:
        return {"error": str(error)}
    samples: dict[str, dict[str, list[float]]] = {}
    with _upstream() as upstream, _servers({"embedded": "", "real": real}) as servers:
        ways = {name: links.create("bench", upstream) for name, links in servers.items()} | {"direct": upstream}
        for number in range(ROUNDS):
            for name, address in ways.items():
                mine = samples.setdefault(name, {})
                mine.setdefault("mb_per_s", []).append(_rate(address, _BYTES))
                mine.setdefault("round_trip_us", []).append(_trip(address, _TRIPS) * 1e6)
                if name in servers:
                    _toxics(servers[name], address, mine)
            say(f"  links {number}: " + ", ".join(f"{name} {values['mb_per_s'][-1]:.0f} MB/s"
                                                  for name, values in samples.items()))
        speeds = _side_by_side({name: (links, ways[name]) for name, links in servers.items()}, say)
    medians = {name: {figure: round(median(values), 2) for figure, values in mine.items()}
               for name, mine in samples.items()}
    for name in servers:
        medians[name]["added_us"] = round(medians[name]["round_trip_us"] - medians["direct"]["round_trip_us"], 1)
    return {"asked_for": {"delay_ms_each_way": _DELAY_MS, "rate_mb_per_s": _RATE_KB / 1e3},
            "embedded_over_real": round(medians["embedded"]["mb_per_s"] / medians["real"]["mb_per_s"], 2),
            "embedded_over_real_under": speeds, **medians}


def _side_by_side(servers: dict[str, tuple[Links, str]], say: Callable[[str], None]
                  ) -> dict[str, dict[str, float]]:
    """How many times as fast as the real server the embedded one is, under each toxic and each load, in turns."""
    loads: dict[str, Callable[[str], float]] = {
        "bulk": lambda address: _rate(address, _LOAD), "bulk on 64": _connections,
        "messages": lambda address: _echoes(address, 1),
        "messages on 64": lambda address: _echoes(address, _CONNECTIONS)}
    ratios: dict[str, dict[str, float]] = {}
    for name, toxic in _TOXICS.items():
        speeds: dict[tuple[str, str], list[float]] = {}
        for links, _ in servers.values():
            if toxic is not None:
                links.add("bench", toxic)
        for _, (load, speed), (server, (_, address)) in product(range(_TURNS), loads.items(), servers.items()):
            speeds.setdefault((load, server), []).append(speed(address))
        for links, _ in servers.values():
            if toxic is not None:
                links.remove("bench", toxic.name)
        ratios[name] = {load: round(median(speeds[load, "embedded"]) / median(speeds[load, "real"]), 2)
                        for load in loads}
        say(f"  links under {name}: " + ", ".join(
            f"{load} {ratio} times ({median(speeds[load, 'embedded']):.0f} and {median(speeds[load, 'real']):.0f})"
            for load, ratio in ratios[name].items()))
    return ratios


def _echoes(address: str, connections: int) -> float:
    """Messages of 64 bytes a second, there and back, one under way on each connection.

    If they go one way only, their number says how seldom the receiver is awake: straight to it there are fewer than
    through either server.
    """
    with ExitStack() as open_ones, selectors.DefaultSelector() as waiting:
        for _ in range(connections):
            link = open_ones.enter_context(_connect(address, b"e"))
            waiting.register(link, selectors.EVENT_READ)
            link.sendall(_MESSAGE)
        count, began = 0, time.perf_counter()
        while time.perf_counter() < began + _MESSAGES_S:
            for ready, _ in waiting.select(_MESSAGES_S):
                assert isinstance(ready.fileobj, socket.socket)
                count += len(ready.fileobj.recv(4096)) // len(_MESSAGE)
                ready.fileobj.sendall(_MESSAGE)
        return count / (time.perf_counter() - began)


def _connections(address: str) -> float:
    """MB/s of many connections at the same time, all together."""
    began = time.perf_counter()
    with ThreadPoolExecutor(_CONNECTIONS) as pool:
        list(pool.map(lambda _: _rate(address, _LOAD // _CONNECTIONS), range(_CONNECTIONS)))
    return _LOAD / (time.perf_counter() - began) / 1e6


def _toxics(links: Links, address: str, samples: dict[str, list[float]]) -> None:
    """What a requested delay and a requested rate turn out to be, as errors in percent."""
    base = _trip(address, 20)
    latency = [Toxic("latency", stream, {"latency": _DELAY_MS, "jitter": 0}) for stream in ("upstream", "downstream")]
    for toxic in latency:
        links.add("bench", toxic)
    delay = (_trip(address, 20) - base) / 2
    for toxic in latency:
        links.remove("bench", toxic.name)
    samples.setdefault("delay_error_percent", []).append(100 * (delay * 1e3 / _DELAY_MS - 1))
    thin = Toxic("bandwidth", "upstream", {"rate": _RATE_KB})
    links.add("bench", thin)
    rate = _rate(address, _RATE_KB * 1000)
    links.remove("bench", thin.name)
    samples.setdefault("rate_error_percent", []).append(100 * (rate / (_RATE_KB / 1e3) - 1))


@contextmanager
def _servers(binaries: dict[str, str]) -> Iterator[dict[str, Links]]:
    with tempfile.TemporaryDirectory(prefix="diloco-chaos-bench-") as folder:
        def spawn(argv: Any) -> subprocess.Popen[bytes]:
            return subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        made = {name: LocalLinkServer(Path(folder), spawn, lambda: "", binary=binary)
                for name, binary in binaries.items()}
        try:
            yield {name: server.links for name, server in made.items()}
        finally:
            for server in made.values():
                server.process.terminate()
                server.process.wait()


@contextmanager
def _upstream() -> Iterator[str]:
    """A server in a process of its own: echoes after `e`, and counts after `s`."""
    process = subprocess.Popen([sys.executable, "-m", "benchmarks.measure.links"], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None, "asked for"
    try:
        yield f"127.0.0.1:{int(process.stdout.readline())}"
    finally:
        process.terminate()
        process.wait()


def _connect(address: str, mode: bytes) -> socket.socket:
    host, _, port = address.rpartition(":")
    link = socket.create_connection((host, int(port)), 60)
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    link.sendall(mode)
    return link


def _rate(address: str, size: int) -> float:
    """MB/s of so many bytes, until the other side has them all."""
    block = os.urandom(min(size, 1 << 20))
    with _connect(address, b"s" + size.to_bytes(8, "big")) as link:
        began, sent = time.perf_counter(), 0
        while sent < size:
            sent += link.send(block[:size - sent])
        link.recv(1)
        return size / (time.perf_counter() - began) / 1e6


def _trip(address: str, count: int) -> float:
    """Seconds of a byte's median round trip."""
    with _connect(address, b"e") as link:
        times = []
        for _ in range(count):
            began = time.perf_counter()
            link.sendall(b"x")
            link.recv(1)
            times.append(time.perf_counter() - began)
    return median(times)


def _serve(link: socket.socket) -> None:
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with link, suppress(ConnectionError):  # whoever has measured enough goes
        if link.recv(1) == b"e":
            while data := link.recv(4096):
                link.sendall(data)
            return
        left, buffer = int.from_bytes(link.recv(8, socket.MSG_WAITALL), "big"), bytearray(1 << 20)
        while left > 0 and (count := link.recv_into(buffer)):
            left -= count
        link.sendall(b"!")


if __name__ == "__main__":
    listening = socket.create_server(("127.0.0.1", 0))
    print(listening.getsockname()[1], flush=True)
    while True:
        threading.Thread(target=_serve, args=(listening.accept()[0],), daemon=True).start()
