"""The local cluster runs any nodes, not only ours: here a small echo server and its callers, a line of Python each."""

import os
import signal
import socket
import sys
import time

import pytest

from harness.cluster.base import ClusterError, NodeSpec
from harness.cluster.duty import PERIOD_S
from harness.cluster.local import LocalCluster
from harness.ledger import Ledger
from harness.links.client import Toxic

HUB = """
import json, socket, sys, time
run, port = sys.argv[1], int(sys.argv[2])
server = socket.create_server(("127.0.0.1", port))
with open(f"{run}/tape/hub.{sys.argv[3]}.jsonl", "a") as tape:
    tape.write(json.dumps({"t": 0, "node": "hub", "inc": int(sys.argv[3]), "event": "listening",
                           "port": server.getsockname()[1]}) + chr(10))
while True:
    link, _ = server.accept()
    link.sendall(b"hello")
    link.close()
"""
WORKER = """
import sys, time
count = 0
while True:
    time.sleep(0.002)
    count += 1
    with open(sys.argv[1], "w") as file:
        file.write(str(count))
"""


@pytest.fixture
def events():
    return []


@pytest.fixture
def cluster(tmp_path, events):
    (tmp_path / "tape").mkdir()
    ledger = Ledger(tmp_path / "ledger.jsonl", "c0ffee" * 4)
    made = LocalCluster(tmp_path, lambda event, **fields: events.append((event, fields)), ledger)
    yield made
    made.stop()
    ledger.close()


def hub(tmp_path, source=HUB):
    return NodeSpec("hub", (sys.executable, "-c", source, str(tmp_path), "{listen}", "{incarnation}"), listens=True)


def worker(tmp_path, source=WORKER):
    return NodeSpec("worker", (sys.executable, "-c", source, str(tmp_path / "count")), connects_to="hub")


def until(condition, cluster, seconds=15):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it never happened"
        cluster.poll()
        time.sleep(0.01)


def reach(address):
    host, port = address.split(":")
    with socket.create_connection((host, int(port)), 2) as link:
        return link.recv(5)


def count(tmp_path):
    try:
        return int((tmp_path / "count").read_text() or 0)
    except FileNotFoundError:
        return 0


def test_nodes_are_connected_through_links_that_can_be_cut(cluster, tmp_path):
    cluster.start([hub(tmp_path), worker(tmp_path)])
    assert reach(cluster.address("worker")) == b"hello"
    cluster.cut("worker", True)
    with pytest.raises(OSError):
        assert reach(cluster.address("worker")) == b"hello"
    assert cluster.residue() == ["worker is cut off"]
    cluster.cut("worker", False)
    assert reach(cluster.address("worker")) == b"hello"
    assert cluster.residue() == []


def test_a_degraded_link_is_residue_until_it_is_restored(cluster, tmp_path):
    cluster.start([hub(tmp_path), worker(tmp_path)])
    toxic = Toxic("latency", "downstream", {"latency": 150, "jitter": 0})
    cluster.degrade("worker", [toxic])
    began = time.monotonic()
    assert reach(cluster.address("worker")) == b"hello"
    assert time.monotonic() - began >= 0.14
    assert cluster.residue() == ["toxic latency_downstream on worker"]
    cluster.restore("worker", [toxic])
    cluster.restore("worker", [toxic])
    assert cluster.residue() == []


def test_a_killed_node_is_started_again_by_the_cluster_and_by_nobody_else(cluster, tmp_path, events):
    cluster.start([hub(tmp_path), worker(tmp_path)])
    first = cluster.states()["worker"].pid
    cluster.kill("worker", 0.2)
    until(lambda: ("exit", {"target": "worker", "incarnation": 0, "status": -signal.SIGKILL, "killed": True}) in events,
          cluster)
    assert cluster.states()["worker"].state == "dead"
    until(lambda: cluster.states()["worker"].state == "running", cluster)
    assert cluster.states()["worker"].incarnation == 1
    assert cluster.states()["worker"].pid != first
    assert ("exit", {"target": "worker", "incarnation": 0, "status": -9, "killed": True}) in events


def test_a_killed_hub_comes_back_on_its_port(cluster, tmp_path):
    cluster.start([hub(tmp_path), worker(tmp_path)])
    cluster.kill("hub", 0.0)

    def answers():
        try:
            return reach(cluster.address("worker")) == b"hello"
        except OSError:
            return False
    until(answers, cluster)
    assert cluster.states()["hub"].incarnation == 1


def test_a_node_that_was_killed_for_good_stays_dead(cluster, tmp_path):
    cluster.start([hub(tmp_path), worker(tmp_path)])
    cluster.kill("worker", None)
    until(lambda: cluster.states()["worker"].state == "dead", cluster)
    cluster.poll()
    assert cluster.states()["worker"].incarnation == 0


def test_a_stopped_node_can_be_killed(cluster, tmp_path):
    cluster.start([hub(tmp_path), worker(tmp_path)])
    os.kill(cluster.states()["worker"].pid, signal.SIGSTOP)
    until(lambda: cluster.residue() == ["worker is stopped"], cluster)
    cluster.kill("worker", None)
    cluster.wait_gone("worker")
    assert cluster.states()["worker"].state == "dead"
    assert cluster.residue() == []


def test_a_throttled_node_stands_still_for_a_part_of_each_period_and_is_let_go(cluster, tmp_path):
    cluster.start([hub(tmp_path), worker(tmp_path)])
    until(lambda: count(tmp_path) > 0, cluster)
    cluster.throttle("worker", 0.25)
    assert "worker is throttled" in cluster.residue()
    until(lambda: cluster.states()["worker"].state == "paused", cluster)
    before = count(tmp_path)
    end = time.monotonic() + PERIOD_S * 0.4
    while time.monotonic() < end:
        cluster.poll()
        time.sleep(0.01)
    assert count(tmp_path) - before <= 1  # at most the write that was under way
    cluster.throttle("worker", None)
    assert cluster.states()["worker"].state == "running"
    until(lambda: count(tmp_path) > before + 10, cluster)
    assert cluster.residue() == []


def test_a_node_that_dies_on_its_own_is_told_with_the_end_of_its_log(cluster, tmp_path):
    crash = "import sys; print('the reason', file=sys.stderr); sys.exit(7)"
    cluster.start([hub(tmp_path), worker(tmp_path, crash)])
    with pytest.raises(ClusterError, match=r"worker died on its own \(exit code 7\):\n  the reason"):
        until(lambda: False, cluster)


def test_a_hub_that_does_not_come_up_is_told_with_the_end_of_its_log(cluster, tmp_path):
    with pytest.raises(ClusterError, match=r"hub did not start \(exit code 1\):\n(.|\n)*no such thing"):
        cluster.start([hub(tmp_path, "raise SystemExit('no such thing')")])


def test_stopping_ends_every_process_also_stopped_ones_and_can_be_repeated(cluster, tmp_path):
    cluster.start([hub(tmp_path), worker(tmp_path)])
    pids = [state.pid for state in cluster.states().values()]
    os.kill(pids[1], signal.SIGSTOP)
    cluster.stop()
    cluster.stop()
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
