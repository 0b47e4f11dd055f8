"""The local cluster runs any nodes, not only ours."""

import os
import signal
import socket
import time

import pytest

from diloco_chaos.harness.links.toxic import Toxic
from diloco_chaos.harness.places.base import ClusterError
from diloco_chaos.harness.places.nodes.duty_cycle import PERIOD_S
from diloco_chaos.harness.record.tape.events import Listening
from diloco_chaos.harness.record.tape.reading import Tape


def reach(address):
    host, port = address.split(":")
    with socket.create_connection((host, int(port)), 2) as link:
        return link.recv(5)


def test_nodes_are_connected_through_links_that_can_be_cut(ground):
    cluster = ground.start()
    assert reach(cluster.address("worker")) == b"hello"
    cluster.disable_link("worker")
    with pytest.raises(OSError):
        assert reach(cluster.address("worker")) == b"hello"
    assert cluster.residue() == ["worker is partitioned"]
    cluster.enable_link("worker")
    assert reach(cluster.address("worker")) == b"hello"
    assert cluster.residue() == []


def test_a_degraded_link_is_residue_until_it_is_restored(ground):
    cluster = ground.start()
    toxic = Toxic("latency", "downstream", {"latency": 150, "jitter": 0})
    cluster.degrade("worker", [toxic])
    began = time.monotonic()
    assert reach(cluster.address("worker")) == b"hello"
    assert time.monotonic() - began >= 0.14
    assert cluster.residue() == ["toxic latency_downstream on worker"]
    cluster.restore("worker", [toxic])
    cluster.restore("worker", [toxic])
    assert cluster.residue() == []


def test_a_killed_node_is_started_again_by_the_cluster_and_by_nobody_else(ground):
    cluster = ground.start()
    first = cluster.states()["worker"].pid
    cluster.kill("worker", 0.2)
    ground.until(ground.exits)
    assert ground.exits() == [(0, -signal.SIGKILL, True)]
    assert cluster.states()["worker"].state == "dead"
    ground.until(lambda: cluster.states()["worker"].state == "running")
    assert cluster.states()["worker"].incarnation == 1
    assert cluster.states()["worker"].pid != first


def test_a_killed_hub_comes_back_on_its_port(ground):
    cluster = ground.start()
    cluster.kill("hub", 0.0)

    def answers():
        try:
            return reach(cluster.address("worker")) == b"hello"
        except OSError:
            return False
    ground.until(answers)
    assert cluster.states()["hub"].incarnation == 1


def test_a_dead_hubs_port_is_given_to_nobody_and_refuses(ground):
    cluster = ground.start()
    port = next(event.port for event in Tape.read(ground.path / "tape").of(Listening))
    cluster.kill("hub", None)
    ground.until(lambda: cluster.states()["hub"].state == "dead")
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("127.0.0.1", port))
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), 2)
    cluster.stop()
    with socket.socket() as other:
        other.bind(("127.0.0.1", port))


def test_a_node_that_was_killed_for_good_stays_dead(ground):
    cluster = ground.start()
    cluster.kill("worker", None)
    ground.until(lambda: cluster.states()["worker"].state == "dead")
    cluster.poll()
    assert cluster.states()["worker"].incarnation == 0


def test_a_stopped_node_can_be_killed(ground):
    cluster = ground.start()
    os.kill(cluster.states()["worker"].pid, signal.SIGSTOP)
    ground.until(lambda: cluster.residue() == ["worker is stopped"])
    cluster.kill("worker", None)
    cluster.wait_gone("worker")
    assert cluster.states()["worker"].state == "dead"
    assert cluster.residue() == []


def test_a_throttled_node_stands_still_for_a_part_of_each_period_and_is_let_go(ground):
    cluster = ground.start()
    ground.until(lambda: ground.count() > 0)
    cluster.throttle("worker", 0.25)
    assert "worker is throttled" in cluster.residue()
    ground.until(lambda: cluster.states()["worker"].state == "paused")
    before = ground.count()
    end = time.monotonic() + PERIOD_S * 0.4
    while time.monotonic() < end:
        ground.cluster.poll()
        time.sleep(0.01)
    assert ground.count() - before <= 1  # at most the write that was under way
    cluster.throttle("worker", None)
    assert cluster.states()["worker"].state == "running"
    ground.until(lambda: ground.count() > before + 10)
    assert cluster.residue() == []


def test_a_node_that_dies_on_its_own_is_told_with_the_end_of_its_log(ground):
    crash = "import sys; print('the reason', file=sys.stderr); sys.exit(7)"
    ground.start(crash)
    with pytest.raises(ClusterError, match=r"worker died on its own \(exit code 7\):\n  the reason"):
        ground.until(lambda: False)


def test_a_hub_that_does_not_come_up_is_told_with_the_end_of_its_log(ground):
    with pytest.raises(ClusterError, match=r"hub did not start \(exit code 1\):\n(.|\n)*no such thing"):
        ground.cluster.start([ground.hub("raise SystemExit('no such thing')")])


def test_stopping_ends_every_process_also_stopped_ones_and_can_be_repeated(ground):
    cluster = ground.start()
    pids = [state.pid for state in cluster.states().values()]
    os.kill(pids[1], signal.SIGSTOP)
    cluster.stop()
    cluster.stop()
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
