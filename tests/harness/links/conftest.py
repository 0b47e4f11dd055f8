"""Both servers that answer Toxiproxy's API, and plain sockets at the two ends of a link."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from diloco_chaos.harness.links.client import Links

PATIENCE_S = 20.0  # for things that happen at once on an idle machine


@dataclass(frozen=True)
class LinkServerProcess:
    """A running server: `kind` is "embedded" or "real", `address` that of its API."""

    kind: str
    address: str
    pid: int


def real_binary() -> str | None:
    """The real toxiproxy-server, where there is one."""
    return os.environ.get("DILOCO_CHAOS_TOXIPROXY") or shutil.which("toxiproxy-server")


def wait_until(happened: Callable[[], Any]) -> Any:
    """Poll what no event tells of, another process's state, until it is truthy."""
    deadline = time.monotonic() + PATIENCE_S
    while not (value := happened()):
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.01)
    return value


def answers(port: int) -> bool:
    """Whether somebody accepts connections there."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), PATIENCE_S):
        return True
    return False


@contextlib.contextmanager
def embedded_server(folder: Path) -> Iterator[LinkServerProcess]:
    address_file = folder / "address"
    process = subprocess.Popen([sys.executable, "-m", "diloco_chaos.harness.links.server", "--port", "0",
                                "--address-file", str(address_file), "--seed", "1"])
    try:
        wait_until(lambda: address_file.exists() or process.poll() is not None)
        yield LinkServerProcess("embedded", address_file.read_text(), process.pid)
    finally:
        process.terminate()
        process.wait(PATIENCE_S)


@contextlib.contextmanager
def real_server() -> Iterator[LinkServerProcess]:
    binary = real_binary()
    if binary is None:
        pytest.skip("no real server: set DILOCO_CHAOS_TOXIPROXY, or put toxiproxy-server on PATH")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = subprocess.Popen([binary, "-host", "127.0.0.1", "-port", str(port), "-proxy-metrics"],
                               stdout=subprocess.DEVNULL)
    try:
        wait_until(lambda: answers(port))
        yield LinkServerProcess("real", f"127.0.0.1:{port}", process.pid)
    finally:
        process.terminate()
        process.wait(PATIENCE_S)


@contextlib.contextmanager
def container_server() -> Iterator[LinkServerProcess]:
    """The image that runs in containers use, on this machine's own network: the links' two ends are here."""
    from diloco_chaos.harness.places.base import ClusterError
    from diloco_chaos.harness.places.compose import compose_file
    from diloco_chaos.harness.places.compose.engine import DockerEngine
    from diloco_chaos.harness.places.compose.readiness import must_be_ready
    try:
        must_be_ready()
    except ClusterError as error:
        if os.environ.get("DILOCO_CHAOS_REQUIRE_ENGINE"):
            pytest.fail(str(error), pytrace=False)
        pytest.skip(f"no engine for containers: {error}")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    engine = DockerEngine()
    container = engine.client.containers.run(
        compose_file.service(compose_file.find(), "toxiproxy")["image"], network_mode="host", detach=True,
        command=["-host", "127.0.0.1", "-port", str(port), "-proxy-metrics"])
    try:
        wait_until(lambda: answers(port))
        container.reload()
        yield LinkServerProcess("real", f"127.0.0.1:{port}", int(container.attrs["State"]["Pid"]))
    finally:
        container.remove(force=True)
        engine.close()


@pytest.fixture(scope="session", params=["embedded", "real", "container"])
def server(request: pytest.FixtureRequest,
           tmp_path_factory: pytest.TempPathFactory) -> Iterator[LinkServerProcess]:
    """The embedded server, the real one, and the real one from its image, in turn."""
    started = {"embedded": lambda: embedded_server(tmp_path_factory.mktemp("server")), "real": real_server,
               "container": container_server}[request.param]()
    with started as running:
        yield running


@pytest.fixture(scope="session")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LinkServerProcess]:
    """The embedded server, for what the real one doesn't do."""
    with embedded_server(tmp_path_factory.mktemp("embedded")) as running:
        yield running


def call(address: str, method: str, path: str, body: Any = None,
         headers: dict[str, str] | None = None) -> tuple[int, Any]:
    """One HTTP request, without any client library between; status and JSON (text where it is none)."""
    connection = HTTPConnection(address, timeout=PATIENCE_S)
    try:
        content = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        connection.request(method, path, content, headers or {})
        response = connection.getresponse()
        text = response.read().decode()
    finally:
        connection.close()
    try:
        return response.status, json.loads(text)
    except ValueError:
        return response.status, text


@pytest.fixture
def api(server: LinkServerProcess) -> Iterator[Callable[..., tuple[int, Any]]]:
    """`api(method, path, body=None, headers=None)` on a server without proxies."""
    yield lambda *args, **kwargs: call(server.address, *args, **kwargs)
    for name in call(server.address, "GET", "/proxies")[1]:
        call(server.address, "DELETE", f"/proxies/{name}")


@pytest.fixture
def embedded_api(embedded: LinkServerProcess) -> Iterator[Callable[..., tuple[int, Any]]]:
    """Like `api`, on the embedded server only."""
    yield lambda *args, **kwargs: call(embedded.address, *args, **kwargs)
    for name in call(embedded.address, "GET", "/proxies")[1]:
        call(embedded.address, "DELETE", f"/proxies/{name}")


@pytest.fixture
def links(server: LinkServerProcess, api: Callable[..., tuple[int, Any]]) -> Links:
    """The adapter, on a server without links."""
    return Links(server.address, timeout_s=PATIENCE_S)


@pytest.fixture
def sockets() -> Iterator[contextlib.ExitStack]:
    """Closes what is entered into it at the end of the test."""
    with contextlib.ExitStack() as stack:
        yield stack


@pytest.fixture
def listener(sockets: contextlib.ExitStack) -> socket.socket:
    """Where the link `wire` leads."""
    listening = sockets.enter_context(socket.create_server(("127.0.0.1", 0)))
    listening.settimeout(PATIENCE_S)
    return listening


@pytest.fixture
def address(links: Links, listener: socket.socket) -> tuple[str, int]:
    """Where the link `wire` listens."""
    host, _, port = links.create("wire", f"127.0.0.1:{listener.getsockname()[1]}").rpartition(":")
    return host, int(port)


@pytest.fixture
def dial(address: tuple[str, int], sockets: contextlib.ExitStack) -> Callable[[], socket.socket]:
    """Opens a socket to the link `wire`."""
    return lambda: sockets.enter_context(socket.create_connection(address, PATIENCE_S))


@pytest.fixture
def connect(dial: Callable[[], socket.socket], listener: socket.socket,
            sockets: contextlib.ExitStack) -> Callable[[], tuple[socket.socket, socket.socket]]:
    """Opens a connection through the link `wire`: the client's socket and the upstream's."""
    def open_both() -> tuple[socket.socket, socket.socket]:
        client = dial()
        peer = sockets.enter_context(listener.accept()[0])
        peer.settimeout(PATIENCE_S)
        return client, peer
    return open_both


@dataclass(frozen=True)
class Way:
    """One direction of a connection through the link `wire`: what `source` sends, `sink` is to read."""

    source: socket.socket
    sink: socket.socket

    def read(self, size: int) -> bytes:
        """Exactly `size` bytes at the sink, fewer where the stream ends before."""
        parts = []
        while size and (part := self.sink.recv(min(size, 1 << 20))):
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def carries(self, data: bytes) -> bool:
        """Send `data`, and wait for it."""
        self.source.sendall(data)
        return self.read(len(data)) == data

    @property
    def back(self) -> Way:
        """The other direction."""
        return Way(self.sink, self.source)

    def end(self) -> str:
        """Wait until the sink reads the end of the stream: "closed", or "reset"."""
        try:
            unexpected = self.sink.recv(1)
        except ConnectionResetError:
            return "reset"
        assert unexpected == b""
        return "closed"

    def ends(self) -> tuple[str, str]:
        """Wait until source and sink read the end of the connection."""
        return self.back.end(), self.end()


@pytest.fixture(params=["upstream", "downstream"])
def stream(request: pytest.FixtureRequest) -> str:
    """Each of the two directions in turn."""
    return str(request.param)


@pytest.fixture
def open_way(connect: Callable[[], tuple[socket.socket, socket.socket]], stream: str) -> Callable[[], Way]:
    """Opens a connection through the link `wire`: its direction `stream`."""
    def open_both() -> Way:
        client, peer = connect()
        return Way(client, peer) if stream == "upstream" else Way(peer, client)
    return open_both


@pytest.fixture
def settled() -> Callable[[Callable[[], Any]], Any]:
    """`wait_until`, for tests."""
    return wait_until
