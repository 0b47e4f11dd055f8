"""A port of this machine that leads somewhere else."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress

from harness.cluster.kubernetes.forward import Forward


def test_both_ways_are_carried_and_an_end_ends_both():
    theirs = []

    def dial():
        here, there = socket.socketpair()
        theirs.append(there)
        return here
    forward = Forward(dial)
    host, _, port = forward.address.rpartition(":")
    with socket.create_connection((host, int(port)), 5.0) as ours:
        ours.sendall(b"ask")
        ours.settimeout(5.0)
        while not theirs:
            threading.Event().wait(0.01)
        assert theirs[0].recv(10) == b"ask"
        theirs[0].sendall(b"answer")
        assert ours.recv(10) == b"answer"
        theirs[0].close()
        assert ours.recv(10) == b""
    forward.close()


def test_who_keeps_connections_open_keeps_nobody_out():
    theirs = []

    def dial():
        here, there = socket.socketpair()
        theirs.append(there)
        return here
    forward = Forward(dial)
    host, _, port = forward.address.rpartition(":")
    idle = [socket.create_connection((host, int(port)), 5.0) for _ in range(200)]
    idle[0].settimeout(5.0)
    assert idle[0].recv(1) == b"", "the oldest has to go"

    def arrived():
        for one in tuple(theirs):
            with suppress(BlockingIOError):
                if one.recv(10, socket.MSG_DONTWAIT) == b"ask":
                    return True
        return False
    with socket.create_connection((host, int(port)), 5.0) as ours:
        ours.sendall(b"ask")
        while not arrived():
            threading.Event().wait(0.01)
    for one in idle:
        one.close()
    forward.close()


def test_where_nobody_is_the_connection_ends():
    def dial():
        raise OSError("nobody")
    forward = Forward(dial)
    host, _, port = forward.address.rpartition(":")
    with socket.create_connection((host, int(port)), 5.0) as ours:
        ours.settimeout(5.0)
        assert ours.recv(10) == b""
    forward.close()
