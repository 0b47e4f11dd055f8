"""Ports that nodes of this machine get."""

import socket

import pytest

from diloco_chaos.harness.places.local import link_server
from diloco_chaos.harness.places.local.link_server import free_port


@pytest.fixture
def given(tmp_path, monkeypatch):
    """Says which ports the kernel gives to outgoing connections."""
    monkeypatch.setattr(link_server, "_GIVEN", tmp_path / "range")
    return (tmp_path / "range").write_text


def test_a_free_port_is_none_that_an_outgoing_connection_gets(given):
    given("20000\t60999\n")
    assert all(10_000 <= free_port() < 20_000 for _ in range(200))


@pytest.mark.parametrize("text", ["1024\t65535\n", "", "many"])
def test_where_there_are_none_below_those_it_is_any(given, text):
    given(text)
    with socket.create_server(("127.0.0.1", free_port())):
        pass


def test_one_that_is_taken_is_not_drawn(given, monkeypatch):
    given("20000\t60999\n")
    with socket.create_server(("127.0.0.1", free_port())) as server:
        taken = server.getsockname()[1]
        drawn = iter([taken - 10_000, *range(100)])
        monkeypatch.setattr(link_server, "randbelow", lambda _: next(drawn))
        assert taken != free_port() < 10_100
