"""What the embedded server refuses beyond Toxiproxy, and what it survives."""

from __future__ import annotations

import errno
import json
import random
import socket
from collections.abc import Callable
from typing import Any

import pytest

from diloco_chaos.harness.links.addresses import NotLoopbackError, listen_address, split_address

Api = Callable[..., tuple[int, Any]]

PROXY = {"name": "a", "listen": "127.0.0.1:0", "upstream": "127.0.0.1:9"}


@pytest.fixture
def say(embedded: Any) -> Callable[[bytes], bytes]:
    """Send raw bytes to the API's port and the end of the stream; all that comes back."""
    def send(sent: bytes) -> bytes:
        host, _, port = embedded.address.rpartition(":")
        with socket.create_connection((host, int(port)), 20) as sock:
            sock.sendall(sent)
            sock.shutdown(socket.SHUT_WR)
            received = b""
            try:
                while part := sock.recv(65536):
                    received += part
            except ConnectionResetError:
                pass  # the server hung up on bytes it never read
            return received
    return send


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1:8474", "[::1]:8474", "[::1]"])
def test_a_local_host_is_let_in(embedded_api: Api, host: str) -> None:
    assert embedded_api("GET", "/proxies", headers={"Host": host}) == (200, {})


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8474", "127.0.0.1.evil.example",
                                  "localhost.evil.example", "evil.example/localhost",
                                  "127.0.0.1:8474@evil.example", "0.0.0.0:8474", "", ":80"])
@pytest.mark.parametrize(("method", "body"), [("GET", None), ("POST", PROXY)])
def test_any_other_host_is_refused(embedded_api: Api, host: str, method: str, body: Any) -> None:
    status, answer = embedded_api(method, "/proxies", body, {"Host": host})
    assert status == answer["status"] == 403
    assert "Host" in answer["error"]
    assert embedded_api("GET", "/proxies") == (200, {})


def test_a_missing_or_second_host_is_refused(say: Callable[[bytes], bytes]) -> None:
    for hosts in (b"", b"Host: localhost\r\nHost: evil.example\r\n"):
        assert say(b"GET /proxies HTTP/1.1\r\n" + hosts + b"\r\n").startswith(b"HTTP/1.1 400 "), "RFC 9112, 3.2"


@pytest.mark.parametrize("origin", ["http://localhost:3000", "http://127.0.0.1", "https://[::1]:1"])
def test_a_local_origin_is_let_in(embedded_api: Api, origin: str) -> None:
    assert embedded_api("GET", "/proxies", headers={"Origin": origin}) == (200, {})


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "", "http://localhost.evil.example",
                                    "http://evil.example#localhost", "file://", "http://127.0.0.1:1@evil.example"])
@pytest.mark.parametrize(("method", "body"), [("GET", None), ("POST", PROXY)])
def test_any_other_origin_is_refused(embedded_api: Api, origin: str, method: str, body: Any) -> None:
    status, answer = embedded_api(method, "/proxies", body, {"Origin": origin})
    assert status == answer["status"] == 403
    assert "Origin" in answer["error"]


@pytest.mark.parametrize("listen", ["0.0.0.0:0", ":0", "", "[::]:0", "192.0.2.1:0", "example.com:0",
                                    "127.0.0.1", "localhost", "127.0.0.1:99999", "127.0.0.1:-1", "::1:0",
                                    "127.0.0.1:x", "\x00:0"])
def test_a_listen_address_off_loopback_is_refused(embedded_api: Api, listen: str) -> None:
    status, answer = embedded_api("POST", "/proxies", {**PROXY, "listen": listen})
    assert status == answer["status"] == 400
    _, shown = embedded_api("POST", "/proxies", PROXY)
    assert embedded_api("POST", "/proxies/a", {"listen": listen})[0] == 400
    assert embedded_api("GET", "/proxies") == (200, {"a": shown})


def test_any_loopback_address_can_be_listened_on(embedded_api: Api) -> None:
    _, shown = embedded_api("POST", "/proxies", {**PROXY, "listen": "127.0.0.5:0"})
    assert shown["listen"].startswith("127.0.0.5:")


@pytest.mark.parametrize(("asked", "taken"), [
    ("127.0.0.1:0", True), ("10.1.2.3:80", True), ("10.1.2.4:80", False), ("0.0.0.0:80", False), (":80", False),
    ("lab:80", False)])
def test_where_somebody_says_one_address_more_that_one_can_be_listened_on_and_no_other(asked, taken):
    if taken:
        assert listen_address(asked, "10.1.2.3") == split_address(asked)
    else:
        with pytest.raises(NotLoopbackError):
            listen_address(asked, "10.1.2.3")
    with pytest.raises(NotLoopbackError):
        listen_address("10.1.2.3:80")


def test_no_one_else_gets_the_port_of_a_disabled_proxy(embedded_api: Api) -> None:
    port = int(embedded_api("POST", "/proxies", {**PROXY, "enabled": False})[1]["listen"].rpartition(":")[2])
    assert port != 0
    with socket.socket() as other, pytest.raises(OSError) as taken:
        other.bind(("127.0.0.1", port))
    assert taken.value.errno == errno.EADDRINUSE
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), 20)


@pytest.mark.parametrize("attributes", [{"latency": -1}, {"latency": True}, {"jitter": 2**63}])
def test_settings_that_make_no_sense_are_refused(embedded_api: Api, attributes: dict[str, Any]) -> None:
    embedded_api("POST", "/proxies", PROXY)
    status, answer = embedded_api("POST", "/proxies/a/toxics", {"type": "latency", "attributes": attributes})
    assert status == answer["status"] == 400


@pytest.mark.parametrize("size", [64 * 1024 + 1, 1024 * 1024])
def test_an_oversized_body_is_refused(embedded_api: Api, size: int) -> None:
    status, answer = embedded_api("POST", "/proxies", b" " * size)
    assert status == answer["status"] == 413
    assert embedded_api("GET", "/proxies") == (200, {})


def test_a_huge_body_is_refused_before_it_is_read(say: Callable[[bytes], bytes]) -> None:
    answer = say(b"POST /proxies HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 413 ")


def test_a_refused_body_is_not_taken_for_the_next_request(say: Callable[[bytes], bytes]) -> None:
    hidden = b"GET /proxies HTTP/1.1\r\nHost: localhost\r\n\r\n"
    for length in (b"Content-Length: 99999999999", b"Content-Length: x", b"Transfer-Encoding: chunked"):
        answer = say(b"POST /proxies HTTP/1.1\r\nHost: localhost\r\n" + length + b"\r\n\r\n" + hidden)
        assert answer.count(b"HTTP/1.1 ") == 1


@pytest.mark.parametrize(("head", "status"), [
    (b"GARBAGE", b"400"), (b"GET / HTTP/9.9", b"505"), (b"BREW / HTTP/1.1\r\nHost: localhost", b"501"),
    (b"GET /" + b"a" * 70_000 + b" HTTP/1.1", b"414"), (b"GET / HTTP/1.1\r\nX: " + b"a" * 70_000, b"431"),
    (b"POST /proxies HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5", b"400"),
    (b"POST /proxies HTTP/1.1\r\nHost: localhost\r\nContent-Length: x", b"400"),
    (b"POST /proxies HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2", b"400"),
    (b"POST /proxies HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked", b"411"),
    (b"POST /proxies HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5", b"400"),
])
def test_what_is_not_http_is_answered_in_json(
        say: Callable[[bytes], bytes], embedded_api: Api, head: bytes, status: bytes) -> None:
    top, _, body = say(head + b"\r\n\r\n").partition(b"\r\n\r\n")
    assert top.startswith(b"HTTP/1.1 " + status)
    assert json.loads(body)["status"] == int(status)
    assert json.loads(body)["error"]
    assert embedded_api("GET", "/proxies") == (200, {})


def test_random_bytes_do_no_harm(say: Callable[[bytes], bytes], embedded_api: Api) -> None:
    noise = random.Random(3)
    for _ in range(50):
        say(noise.randbytes(noise.randrange(200)) + b"\r\n\r\n")
    assert embedded_api("GET", "/proxies") == (200, {})


def test_requests_on_one_connection_are_answered_in_turn(say: Callable[[bytes], bytes]) -> None:
    request = b"GET /proxies/none HTTP/1.1\r\nHost: localhost\r\n\r\n"
    assert say(request * 3).count(b"HTTP/1.1 404 ") == 3


@pytest.mark.parametrize("listen", ["", "127.0.0.1", "local373"])
def test_what_is_no_address_leaves_those_before_it_as_they_are(embedded_api: Api, listen: str) -> None:
    status, answer = embedded_api("POST", "/populate", [PROXY, {**PROXY, "name": "b", "listen": listen}])
    assert status == answer["status"] == 400
    assert [proxy["name"] for proxy in answer["proxies"]] == ["a"]
    assert list(embedded_api("GET", "/proxies")[1]) == ["a"]


@pytest.mark.parametrize("listen", ["0.0.0.0:0", "192.0.2.1:0"])
def test_nothing_is_populated_where_one_address_is_off_loopback(embedded_api: Api, listen: str) -> None:
    status, answer = embedded_api("POST", "/populate", [PROXY, {**PROXY, "name": "b", "listen": listen}])
    assert status == answer["status"] == 400
    assert answer["proxies"] is None
    assert embedded_api("GET", "/proxies") == (200, {})


def test_what_follows_the_json_is_refused(embedded_api: Api) -> None:
    assert embedded_api("POST", "/proxies", json.dumps(PROXY).encode() + b" and more")[0] == 400


def test_idle_connections_are_few_the_oldest_go_and_requests_are_still_answered(
        embedded: Any, embedded_api: Api) -> None:
    host, _, port = embedded.address.rpartition(":")
    idle = [socket.create_connection((host, int(port)), 20) for _ in range(100)]
    try:
        assert embedded_api("GET", "/proxies") == (200, {})
        assert idle[0].recv(1) == b""  # hung up long before a silent connection would be
        idle[-1].setblocking(False)
        with pytest.raises(BlockingIOError):
            idle[-1].recv(1)
    finally:
        for one in idle:
            one.close()
