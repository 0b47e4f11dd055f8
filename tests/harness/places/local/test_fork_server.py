"""Nodes are forked from one process, and are to the harness what processes of its own would be."""

import errno
import os
import resource
import secrets
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from diloco_chaos.harness.base.processes import carries, identity, state
from diloco_chaos.harness.places.base import ClusterError
from diloco_chaos.harness.places.local import fork_server
from diloco_chaos.harness.places.local.fork_client import ForkServerProcess
from diloco_chaos.harness.places.local.fork_server import ForkRefusal, ForkRequest, ForkServer, ImportRequest

NODE = """
import os, sys, time
from diloco_chaos.harness.base.parent_death import die_with_parent

def main(arguments):
    what, *_, parent = arguments
    die_with_parent(int(parent))
    print(what, os.getpid() == os.getpgid(0), flush=True)
    if what == "wait":
        time.sleep(60)
    if what == "raise":
        raise RuntimeError("the reason")
    return 7
"""
THREADED = "import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"
TOKEN = secrets.token_hex(16)


@pytest.fixture
def server(tmp_path, monkeypatch):
    (tmp_path / "logs").mkdir()
    (tmp_path / "a_node.py").write_text(NODE)
    (tmp_path / "a_threaded_module.py").write_text(THREADED)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    process = ForkServerProcess(tmp_path, TOKEN)
    yield process
    process.close()


def started(server, what, number=0):
    return server.start("learner-1", number, "a_node", [what])


def log(tmp_path, number=0):
    return (tmp_path / "logs" / f"learner-1.{number}.log").read_text()


def shown(pid, file):
    return Path(f"/proc/{pid}/{file}").read_bytes()


def test_a_node_has_its_arguments_a_log_and_a_process_group_of_its_own(server, tmp_path):
    process = started(server, "end")
    assert process.wait(10) == process.poll() == 7
    assert log(tmp_path) == "end True\n"


def test_an_error_of_a_node_is_in_its_log_and_none_of_the_servers(server, tmp_path):
    assert started(server, "raise").wait(10) == 1
    assert "RuntimeError: the reason" in log(tmp_path)
    assert started(server, "end", 1).wait(10) == 7


def test_a_signal_hits_one_node_alone(server):
    first, second = (started(server, "wait", number) for number in range(2))
    first.kill()
    assert first.wait(10) == -signal.SIGKILL
    first.send_signal(signal.SIGTERM)  # it is gone: nobody gets that
    assert second.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        second.wait(0.01)
    second.send_signal(signal.SIGTERM)
    assert second.wait(10) == -signal.SIGTERM


def test_a_node_carries_the_runs_token_and_shows_its_own_name_and_command_line(server, tmp_path):
    process = started(server, "wait")
    while not log(tmp_path):
        time.sleep(0.01)
    assert carries(process.pid, TOKEN)
    assert shown(process.pid, "comm") == b"learner-1\n"
    assert shown(process.pid, "cmdline").rstrip(b"\0").split(b"\0")[1:] == [b"-m", b"a_node", b"wait"]


def test_limits_are_those_of_the_harness(server):
    process = started(server, "wait")
    for limit in (resource.RLIMIT_NOFILE, resource.RLIMIT_AS, resource.RLIMIT_FSIZE, resource.RLIMIT_NPROC):
        assert resource.prlimit(process.pid, limit) == resource.getrlimit(limit)


def test_the_servers_end_is_that_of_its_nodes_and_the_next_start_says_so(server):
    process = started(server, "wait")
    os.kill(server._popen.pid, signal.SIGKILL)
    assert process.wait(10) == -signal.SIGKILL
    with pytest.raises(ClusterError, match=r"is gone \(killed by SIGKILL\); --start-method spawn does without"):
        started(server, "end", 1)


def test_closing_ends_what_is_left(server):
    process = started(server, "wait")
    server.close()
    while state(process.pid) not in ("", "Z"):
        time.sleep(0.01)
    assert identity(server._popen.pid) is None


def test_an_import_that_starts_a_thread_makes_forks_impossible(server):
    server.imports(["a_threaded_module"])
    assert started(server, "end") is None


def test_what_cant_be_imported_is_told_by_the_node_that_wants_it(server, tmp_path):
    server.imports(["no_such_module"])
    assert started(server, "end").wait(10) == 7
    assert server.start("learner-1", 1, "no_such_module", []).wait(10) == 1
    assert "No module named 'no_such_module'" in log(tmp_path, 1)


def test_a_fork_that_the_kernel_refuses_is_an_error_with_its_reason(monkeypatch, tmp_path):
    def refused():
        raise OSError(errno.EAGAIN, "no")
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    monkeypatch.setattr(fork_server.os, "fork", refused)
    monkeypatch.setattr(fork_server.os, "listdir", lambda _: ["the only thread"])
    with ours, theirs, open(tmp_path / "log", "wb") as file:
        fork_server.send(ours, ImportRequest(("json",)))
        fork_server.send(ours, ForkRequest("learner-1", "a_node", ()), [file.fileno()])
        ours.shutdown(socket.SHUT_WR)
        assert ForkServer(theirs).serve() is None
        assert fork_server.receive(ours) == (ForkRefusal(errno.EAGAIN), [])


def test_the_server_dies_with_the_thread_that_made_it(tmp_path):
    (tmp_path / "logs").mkdir()
    code = ("import sys, pathlib; from diloco_chaos.harness.places.local.fork_client import ForkServerProcess\n"
            f"server = ForkServerProcess(pathlib.Path(sys.argv[1]), {TOKEN!r})\n"
            "server.imports(['json'])\n"
            "print(server._popen.pid, flush=True)\n"
            "sys.stdin.read()")
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, text=True) as harness:
        pid = int(harness.stdout.readline())
        assert identity(pid)
        harness.kill()
    while identity(pid):
        time.sleep(0.01)


def test_a_node_that_the_kernel_has_no_process_for_is_named_with_what_to_do(server, monkeypatch):
    started(server, "end").wait(10)
    refusal = iter([(ForkRefusal(errno.EAGAIN), ())])
    monkeypatch.setattr(server, "_receive", lambda: next(refusal))
    with pytest.raises(ClusterError, match=r"learner-1 can't be started: .*\(Resource temp.*\); raise `ulimit -u`"):
        started(server, "end", 1)
