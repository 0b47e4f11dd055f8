"""Connections that pass no link, and programs that can't be caught, as /proc shows them."""

import os
import secrets
import socket
import subprocess
import sys

import pytest

from diloco_chaos.harness.base.processes import TOKEN
from diloco_chaos.harness.places.local import uncaught
from diloco_chaos.harness.places.local.uncaught import Uncaught
from diloco_chaos.harness.trainers.core.programs import NODE

CONNECTS = """import socket, sys
link = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
print(flush=True)
input()"""
LISTENS = """import socket
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
link = server.accept()[0]
print(flush=True)
input()"""
OURS = secrets.token_hex(16)


@pytest.fixture
def started():
    """started(node, script, argument): the process of a node, after its first line."""
    processes = []

    def start(node, script, *arguments, token=OURS):
        processes.append(subprocess.Popen([sys.executable, "-c", script, *arguments], text=True, stdin=subprocess.PIPE,
                                          stdout=subprocess.PIPE, env=os.environ | {TOKEN: token, NODE: f"{node}.0"}))
        return processes[-1], processes[-1].stdout.readline().strip()
    yield start
    for process in processes:
        process.communicate("\n")


def test_a_connection_between_two_nodes_passes_no_link(started):
    server, port = started("b", LISTENS)
    started("a", CONNECTS, port)
    server.stdout.readline()
    [(one, other, program)] = Uncaught(OURS).beside()
    assert (one, other) == ("a", "b")
    assert program.startswith(os.path.basename(os.path.realpath(sys.executable)))


def test_connections_within_a_node_and_to_others_are_none(started):
    server, port = started("a", LISTENS)
    started("a", CONNECTS, port)
    server.stdout.readline()
    with socket.create_server(("127.0.0.1", 0)) as ours:
        started("b", CONNECTS, str(ours.getsockname()[1]))
        assert Uncaught(OURS).beside() == []


def test_a_static_program_is_told_once_and_only_where_it_should_be_caught(started, monkeypatch):
    started("a", "print(flush=True)\ninput()")
    monkeypatch.setattr(uncaught, "is_static", lambda _: True)
    looking = Uncaught(OURS)
    assert list(looking.new_static(["b"])) == []
    assert [node for node, _ in looking.new_static(["a"])] == ["a"]
    assert list(looking.new_static(["a"])) == []
