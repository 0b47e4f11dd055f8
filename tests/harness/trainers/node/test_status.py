"""A node that is asked how it is answers every request, and survives everything that is no request."""

import asyncio
import json
import threading
from contextlib import asynccontextmanager

import pytest

from diloco_chaos.harness.trainers.node import status
from diloco_chaos.harness.trainers.node.status import main, serve_status

WELL = {"healthy": True, "node": "syncer", "step": 3}
ILL = {"healthy": False, "node": "syncer", "step": 3}


@pytest.fixture
def ask():
    """ask(bytes, what is known) -> code, header fields, body."""
    def run(request, known=WELL):
        return asyncio.run(_ask([request], lambda: known))[0]
    return run


@asynccontextmanager
async def serving(known):
    """The port where it is told what is known."""
    server = await serve_status("127.0.0.1", 0, known)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


async def _ask(requests, known):
    async with serving(known) as port:
        return [await asyncio.wait_for(_one(port, request), 20) for request in requests]


async def _one(port, request):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request)
        await writer.drain()
        reply = await reader.read()
    except ConnectionError:
        return None
    finally:
        writer.close()
    if not reply:
        return None
    head, _, body = reply.partition(b"\r\n\r\n")
    first, *fields = head.decode().split("\r\n")
    version, code, _ = first.split(" ", 2)
    assert version == "HTTP/1.1"
    return int(code), {name.lower(): value for name, value in (field.split(": ", 1) for field in fields)}, body


def get(path, method="GET", more=""):
    return f"{method} {path} HTTP/1.1\r\nHost: here\r\n{more}\r\n".encode()


def test_a_healthy_node_says_so(ask):
    code, fields, body = ask(get("/health"))
    assert (code, json.loads(body)) == (200, {"healthy": True})
    assert fields["content-type"] == "application/json"
    assert fields["connection"] == "close"
    assert int(fields["content-length"]) == len(body)


def test_a_node_that_is_not_well_says_so_with_a_code_that_tools_understand(ask):
    code, _, body = ask(get("/health"), ILL)
    assert (code, json.loads(body)) == (503, {"healthy": False})


@pytest.mark.parametrize("known", [WELL, ILL])
def test_status_tells_everything_whether_the_node_is_well_or_not(ask, known):
    code, _, body = ask(get("/status?now"), known)
    assert (code, json.loads(body)) == (200, known)


@pytest.mark.parametrize("path", ["/", "/healthy", "/status/", "*", "/../etc/passwd"])
def test_any_other_path_is_not_found(ask, path):
    assert ask(get(path))[0] == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
def test_any_other_method_is_not_allowed(ask, method):
    code, fields, _ = ask(get("/health", method))
    assert code == 405
    assert fields.get("allow") == "GET, HEAD", "RFC 9110, 15.5.6: a 405 must say which methods there are"


@pytest.mark.parametrize("method", ["get", "BREW"])
def test_a_method_that_nobody_knows_is_not_implemented(ask, method):
    assert ask(get("/health", method))[0] == 501


@pytest.mark.parametrize("path", ["/health", "/status", "/nothing"])
def test_head_is_answered_as_get_without_a_body(ask, path):
    code, fields, body = ask(get(path, "HEAD"), ILL)
    other, others, full = ask(get(path), ILL)
    assert fields.pop("date")
    assert others.pop("date"), "which may be a second later"
    assert (code, fields, body) == (other, others, b"")
    assert int(fields["content-length"]) == len(full)


@pytest.mark.parametrize("garbage", [b"\r\n\r\n", b"GET\r\n\r\n", b"\x16\x03\x01\x00\xff\xfe\r\n\r\n", b"GET  \r\n\r\n",
                                     b"GET /health\r\n\r\n"])
def test_garbage_is_refused_and_the_next_one_answered(garbage):
    refused, answered = asyncio.run(_ask([garbage, get("/health")], lambda: WELL))
    assert refused is None or refused[0] in (400, 404, 501)
    assert answered[0] == 200


def test_a_header_without_an_end_is_cut_off_and_the_next_one_answered():
    endless = b"GET /health HTTP/1.1\r\nX: " + b"x" * 1_000_000
    refused, answered = asyncio.run(_ask([endless, get("/health")], lambda: WELL))
    assert refused is None or refused[0] >= 400
    assert answered[0] == 200


def test_who_says_nothing_is_not_waited_for_forever_and_keeps_nobody_waiting(monkeypatch):
    monkeypatch.setattr(status, "_IDLE_S", 0.3)

    async def talk():
        async with serving(lambda: WELL) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /health HTTP/1.1\r\n")
            answered = await _one(port, get("/health"))
            assert answered[0] == 200
            assert await asyncio.wait_for(reader.read(), 10) == b""
            writer.close()
    asyncio.run(talk())


def test_a_client_that_reads_nothing_is_given_up(monkeypatch):
    monkeypatch.setattr(status, "_IDLE_S", 0.3)
    large = WELL | {"much": "x" * 30_000_000}

    async def talk():
        before = asyncio.all_tasks()
        async with serving(lambda: large) as port:
            _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
            writer.write(get("/status"))
            until = asyncio.get_running_loop().time() + 10
            while not asyncio.all_tasks() - before:
                assert asyncio.get_running_loop().time() < until, "nobody answers"
                await asyncio.sleep(0.01)
            while asyncio.all_tasks() - before:
                assert asyncio.get_running_loop().time() < until, "a client that reads nothing is still waited for"
                await asyncio.sleep(0.01)
            writer.close()
    asyncio.run(talk())


def test_who_opens_too_many_connections_loses_the_oldest_and_the_next_one_is_answered():
    async def talk():
        async with serving(lambda: WELL) as port:
            idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(status._MOST_OPEN + 1)]
            assert await asyncio.wait_for(idle[0][0].read(), 2) == b"", "the oldest was not hung up on"
            assert (await _one(port, get("/health")))[0] == 200
            for _, writer in idle:
                writer.close()
    asyncio.run(talk())


def test_a_node_that_is_stuck_is_not_well(monkeypatch, capsys):
    monkeypatch.setattr(status, "_IDLE_S", 0.2)
    over = threading.Event()

    def stuck():
        over.wait(10)
        return WELL

    async def talk():
        async with serving(stuck) as port:
            def ask():
                try:
                    return main(["--port", str(port)])
                finally:
                    over.set()
            return await asyncio.to_thread(ask)
    assert asyncio.run(talk()) == 1
    assert "timed out" in capsys.readouterr().err


def test_who_goes_away_at_once_leaves_no_trace(caplog, capfd):
    async def talk():
        async with serving(lambda: WELL) as port:
            for request in (b"", b"GET", get("/status")):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(request)
                writer.transport.abort()
            assert (await _one(port, get("/health")))[0] == 200
    asyncio.run(talk())
    assert caplog.records == []
    assert capfd.readouterr().err == ""


def asked(known, *arguments):
    async def talk():
        async with serving(lambda: known) as port:
            return await asyncio.to_thread(main, [*arguments, "--port", str(port)])
    return asyncio.run(talk())


def test_the_health_check_succeeds_for_a_node_that_is_well(capsys):
    assert asked(WELL) == 0
    assert json.loads(capsys.readouterr().out) == {"healthy": True}


def test_the_health_check_fails_for_a_node_that_is_not(capsys):
    assert asked(ILL) == 1
    assert "does not say that it is well" in capsys.readouterr().err


def test_status_is_told_also_of_a_node_that_is_not_well(capsys):
    assert asked(ILL, "status") == 0
    assert json.loads(capsys.readouterr().out) == ILL


def test_the_health_check_fails_where_nobody_listens(capsys):
    async def closed():
        async with serving(lambda: WELL) as port:
            return port
    assert main(["--port", str(asyncio.run(closed()))]) == 1
    assert "does not say" in capsys.readouterr().err


def test_the_health_check_fails_where_somebody_talks_something_else(capsys):
    async def talk():
        async def answer(reader, writer):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"SSH-2.0-OpenSSH_9.2\r\n")
            writer.close()
        async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
            return await asyncio.to_thread(main, ["--port", str(server.sockets[0].getsockname()[1])])
    assert asyncio.run(talk()) == 1
    assert "does not say" in capsys.readouterr().err


def test_the_health_check_asks_this_node_and_no_proxy(monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    assert asked(WELL) == 0
