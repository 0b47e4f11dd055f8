"""What clients may send to the HTTP server, and what it answers."""

import asyncio
import json
import socket

import pytest

from diloco_chaos.harness.base.http_server import Reply, json_reply, serve

BIG = 2_000


def echo(request):
    if request.path == "/broken":
        raise RuntimeError("no idea")
    if request.path == "/empty":
        return Reply(204)
    return json_reply(200, {"method": request.method, "body": request.body.decode()}, X_Kind="echo")


@pytest.fixture
def say():
    """say(bytes, bytes, ...) -> all that comes back, where each part is sent after an answer to the one before."""
    async def talk(parts):
        server = await serve("127.0.0.1", 0, echo, 10)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        received = b""
        for part in parts:
            writer.write(part)
            if part is parts[-1]:
                writer.write_eof()
            else:
                received += await reader.read(4096)
        received += await reader.read()
        writer.close()
        server.close()
        return received
    return lambda *parts: asyncio.run(asyncio.wait_for(talk(parts), 20))


def request(method="GET", path="/", more="", body=b""):
    length = f"Content-Length: {len(body)}\r\n" if body else ""
    return f"{method} {path} HTTP/1.1\r\nHost: here\r\n{more}{length}\r\n".encode() + body


def test_a_connection_stays_open_from_request_to_request(say):
    first = say(request(body=b"one"), request("POST", body=b"two"))
    assert first.count(b"HTTP/1.1 200 OK\r\n") == 2
    assert b"Connection" not in first
    assert b"X-Kind: echo" in first
    assert first.index(b'"body": "one"') < first.index(b'"body": "two"')


@pytest.mark.parametrize("ends", [request(more="Connection: close\r\n"), b"GET / HTTP/1.0\r\n\r\n"])
def test_a_client_that_asks_once_is_answered_once(say, ends):
    answer = say(ends + request())
    assert answer.count(b"HTTP/1.1 200 OK\r\n") == 1
    assert b"Connection: close\r\n" in answer


def test_an_answer_without_content_has_no_body_and_no_length(say):
    head, _, body = say(request(path="/empty")).partition(b"\r\n\r\n")
    assert (head.partition(b"\r\n")[0], body) == (b"HTTP/1.1 204 No Content", b"")
    assert b"Content-Length" not in head


def test_a_refused_head_has_no_body(say):
    head, _, body = say(request("HEAD", more="Transfer-Encoding: chunked\r\n")).partition(b"\r\n\r\n")
    assert (head.partition(b"\r\n")[0], body) == (b"HTTP/1.1 411 Length Required", b"")


def test_a_client_that_waits_for_it_is_told_to_send_its_body(say):
    answer = say(request("POST", more=f"Expect: 100-continue\r\nContent-Length: {BIG}\r\n"), b"x" * BIG)
    assert answer.startswith(b"HTTP/1.1 100 \r\n\r\nHTTP/1.1 200 OK\r\n")
    assert b"x" * BIG in answer


def test_a_body_that_is_too_large_is_refused_before_a_client_sends_it(say):
    answer = say(request("POST", more="Expect: 100-continue\r\nContent-Length: 99999999\r\n"))
    assert answer.startswith(b"HTTP/1.1 413 ")


def test_another_protocol_is_not_switched_to(say):
    assert say(request(more="Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n")).startswith(b"HTTP/1.1 200 OK")


def test_an_error_of_ours_is_answered_and_keeps_its_traceback(say, capfd):
    head, _, body = say(request(path="/broken") + request()).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 500 ")
    assert json.loads(body) == {"error": "internal error: RuntimeError('no idea')", "status": 500}
    assert "Traceback" in capfd.readouterr().err


def test_requests_that_came_together_leave_time_for_the_loop():
    async def talk():
        turns = []

        def answer(request):
            turns.append("request")
            asyncio.get_running_loop().call_soon(turns.append, "other")
            return Reply(204)
        server = await serve("127.0.0.1", 0, answer, 10)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(request() * 3)
        writer.write_eof()
        await reader.read()
        writer.close()
        server.close()
        return turns
    assert asyncio.run(asyncio.wait_for(talk(), 20)) == ["request", "other"] * 3


def test_a_port_that_is_taken_is_an_os_error():
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(OSError, match="in use"):
        asyncio.run(serve("127.0.0.1", taken.getsockname()[1], echo, 10))
