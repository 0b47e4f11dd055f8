"""A port of this machine that leads somewhere else."""

from __future__ import annotations

import socket
import threading

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


def test_where_nobody_is_the_connection_ends():
    def dial():
        raise OSError("nobody")
    forward = Forward(dial)
    host, _, port = forward.address.rpartition(":")
    with socket.create_connection((host, int(port)), 5.0) as ours:
        ours.settimeout(5.0)
        assert ours.recv(10) == b""
    forward.close()
