"""Questions that are put through links by somebody beside the nodes."""

from __future__ import annotations

import socket

import pytest

from diloco_chaos.harness.trainers.wire.echo import EchoServer
from diloco_chaos.harness.trainers.wire.pod_probe import Beside, ProbeServer

TOKEN = "0123456789abcdef"
QUESTION = {"reply_bytes": 4000, "send_bytes": 0, "watch_close": False}


@pytest.fixture
def beside():
    server = ProbeServer(TOKEN)
    yield server
    server.close()


@pytest.fixture
def echo():
    server = EchoServer(TOKEN)
    yield server
    server.close()


def dial(server):
    return socket.create_connection(server.server_address[:2], 5.0)


def asking(server, token=TOKEN):
    return Beside(token, lambda: dial(server))


def test_a_connection_is_kept_and_made_again_where_it_is_gone(beside, echo):
    made = []

    def dialled():
        made.append(dial(beside))
        return made[-1]
    one = Beside(TOKEN, dialled)
    assert one.ask(echo.address, **QUESTION).answered
    assert one.ask(echo.address, **QUESTION).answered
    assert len(made) == 1
    made[0].shutdown(socket.SHUT_RDWR)
    assert one.ask(echo.address, **QUESTION).answered
    assert len(made) == 2
    one.close()


def test_what_came_of_it_is_told(beside, echo):
    sounding = asking(beside).ask(echo.address, **QUESTION)
    assert sounding.answered
    assert sounding.received > 4000


def test_so_is_that_nobody_was_there(beside):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
    assert asking(beside).ask(address, **QUESTION).end == "refused"


def test_nobody_asks_with_another_token(beside, echo):
    with pytest.raises(ConnectionError):
        asking(beside, "another").ask(echo.address, **QUESTION)


@pytest.mark.parametrize("garbage", [b"\n", b"{}\n", b"[]\n", b"x" * 10_000 + b"\n", b'{"token": 1}\n',
                                     '{"token": "\u00e9"}\n'.encode(), b'{"token": "\\ud800"}\n', b"[" * 4000 + b"\n"])
def test_garbage_is_answered_by_nothing(beside, echo, garbage, capfd):
    with dial(beside) as stranger:
        stranger.sendall(garbage)
        stranger.settimeout(5.0)
        try:
            assert stranger.recv(10) == b""
        except ConnectionResetError:
            pass
    assert asking(beside).ask(echo.address, **QUESTION).answered
    assert capfd.readouterr().err == ""
