"""Who listens where."""

import os
import socket
import subprocess
import sys

import pytest

from diloco_chaos.harness.places.sockets import connections, holds, listening


@pytest.mark.parametrize(("family", "bound", "asked"), [
    (socket.AF_INET, "127.0.0.1", "127.0.0.1"), (socket.AF_INET, "0.0.0.0", "127.0.0.1"),
    (socket.AF_INET6, "::1", "::1"), (socket.AF_INET6, "::", "127.0.0.1")])
def test_a_listener_is_found_by_what_a_connection_asks_for(family, bound, asked):
    with socket.socket(family) as server:
        server.bind((bound, 0))
        port = server.getsockname()[1]
        assert listening(asked, port) == [], "it does not listen yet"
        server.listen()
        found = listening(asked, port)
        assert found == [f"socket:[{os.fstat(server.fileno()).st_ino}]"]
        assert holds(os.getpid(), found)
    assert listening(asked, port) == []


def test_a_port_of_this_name_on_another_machine_or_address_is_not_this_one():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert listening("127.0.0.2", port) == []
    with socket.create_server(("0.0.0.0", 0)) as server:
        assert listening("192.0.2.1", server.getsockname()[1]) == []


def test_a_process_without_it_and_one_that_is_gone_do_not_hold_it():
    with socket.create_server(("127.0.0.1", 0)) as server:
        found = listening("127.0.0.1", server.getsockname()[1])
        other = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
        assert not holds(other.pid, found)
        other.communicate(b"\n")
        assert not holds(other.pid, found)


def test_connections_to_a_port_are_counted_while_they_stand():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert connections(os.getpid(), port) == 0
        with socket.create_connection(("127.0.0.1", port)):
            accepted, _ = server.accept()
            with accepted:
                assert connections(os.getpid(), port) == 1
    ended = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    assert connections(int(ended.stdout), port) is None
