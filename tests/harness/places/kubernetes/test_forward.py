"""A port of this machine that leads somewhere else."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress

import pytest

from diloco_chaos.harness.places.kubernetes.forward import Forward

WITHIN_S = 5.0


class Led:
    """A forwarded port, and the other ends of what came through it."""

    def __init__(self):
        self.theirs = []
        self.forward = Forward(self._dial)

    def _dial(self):
        here, there = socket.socketpair()
        self.theirs.append(there)
        return here

    def connect(self):
        return connected(self.forward)


def connected(forward):
    host, _, port = forward.address.rpartition(":")
    return socket.create_connection((host, int(port)), WITHIN_S)


@pytest.fixture
def led():
    made = Led()
    yield made
    made.forward.close()


def test_both_ways_are_carried_and_an_end_ends_both(led):
    with led.connect() as ours:
        ours.sendall(b"ask")
        while not led.theirs:
            threading.Event().wait(0.01)
        assert led.theirs[0].recv(10) == b"ask"
        led.theirs[0].sendall(b"answer")
        assert ours.recv(10) == b"answer"
        led.theirs[0].close()
        assert ours.recv(10) == b""


def test_who_keeps_connections_open_keeps_nobody_out(led):
    idle = [led.connect() for _ in range(200)]
    assert idle[0].recv(1) == b"", "the oldest has to go"

    def arrived():
        for one in tuple(led.theirs):
            with suppress(BlockingIOError):
                if one.recv(10, socket.MSG_DONTWAIT) == b"ask":
                    return True
        return False
    with led.connect() as ours:
        ours.sendall(b"ask")
        while not arrived():
            threading.Event().wait(0.01)
    for one in idle:
        one.close()


def test_where_nobody_is_the_connection_ends():
    def dial():
        raise OSError("nobody")
    forward = Forward(dial)
    with connected(forward) as ours:
        assert ours.recv(10) == b""
    forward.close()
