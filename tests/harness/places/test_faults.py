"""What can be done to the processes of a local cluster: each of it is owed while it lasts, and taken back."""

import os
import signal
import sys

import pytest

from diloco_chaos.harness.base.processes import state
from diloco_chaos.harness.places.base import ClusterError, NodeSpec, Preemption
from diloco_chaos.harness.trainers.core.programs import Program

PATIENT = """
import signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.signal(signal.SIGUSR2, signal.SIG_IGN)
open(sys.argv[1], "w").write("1")
time.sleep(60)
"""
POLITE = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
open(sys.argv[1], "w").write("1")
while True:
    time.sleep(0.01)
"""
REAL = os.environ.get("DILOCO_CHAOS_TOXIPROXY", "")
HEEDFUL = """
import signal, sys, time
signal.signal(signal.SIGUSR1, lambda *_: sys.exit(7))
open(sys.argv[1], "w").write("1")
time.sleep(60)
"""
STUBBORN = """
import signal, sys, time
seen = []
for number in (signal.SIGUSR1, signal.SIGTERM):
    signal.signal(number, lambda number, _: (seen.append(number), open(sys.argv[1] + ".seen", "w").write(f"{seen}")))
open(sys.argv[1], "w").write("1")
while True:
    time.sleep(0.01)
"""
WRITER = """
import sys, time
data = "x" * 100_000
for number in range(200):
    open(f"{sys.argv[1]}", "w").write(str(number))
    try:
        with open(f"{sys.argv[1]}.large", "w") as file:
            file.write(data)
    except OSError as error:
        print(error)
        sys.exit(3)
    time.sleep(0.01)
"""


def test_a_node_that_is_asked_to_end_ends_in_good_order_and_is_started_again(ground):
    cluster = ground.start(POLITE)
    ground.until(ground.count)
    cluster.terminate("worker", 0.1)
    ground.until(lambda: cluster.states()["worker"].incarnation == 1)
    assert ground.exits() == [(0, 0, True)]


def test_a_node_that_does_not_listen_is_killed(ground):
    cluster = ground.start(PATIENT)
    ground.until(ground.count)
    cluster.terminate("worker", None, signal.SIGTERM, 0.2)
    ground.until(ground.exits)
    assert ground.exits() == [(0, -signal.SIGKILL, True)]


def test_a_node_that_heeds_its_notice_ends_within_it(ground):
    cluster = ground.start(HEEDFUL)
    ground.until(ground.count)
    cluster.preempt("worker", Preemption(signal.SIGUSR1, grace=60, notice=60, restart_after=0.05))
    ground.until(lambda: cluster.states()["worker"].incarnation == 1)
    assert ground.exits() == [(0, 7, True)]


def test_a_node_that_does_not_heed_its_notice_is_asked_to_end_and_then_killed(ground):
    cluster = ground.start(STUBBORN)
    ground.until(ground.count)
    cluster.preempt("worker", Preemption(signal.SIGUSR1, grace=0.2, notice=0.2, restart_after=0.05))
    ground.until(lambda: cluster.states()["worker"].incarnation == 1)
    assert (ground.path / "count.seen").read_text() == f"[{signal.SIGUSR1:d}, {signal.SIGTERM:d}]"
    assert ground.exits() == [(0, -signal.SIGKILL, True)]
    assert [fields["forced_after"] for event, fields in ground.events if event == "exit"] == [0.2]


def test_a_successor_lives_beside_a_preempted_process_and_nothing_follows_when_that_ends(ground):
    cluster = ground.start(PATIENT)
    ground.until(ground.count)
    old = cluster.states()["worker"].pid
    cluster.preempt("worker", Preemption(signal.SIGTERM, grace=0.5, beside=0.0))
    assert cluster.states()["worker"].incarnation == 1
    assert state(old)
    assert ground.owed() == cluster.residue() == []
    ground.until(ground.exits)
    assert ground.exits() == [(0, -signal.SIGKILL, True)]
    cluster.poll()
    assert cluster.states()["worker"].incarnation == 1
    assert ground.site.nodes["worker"].next_at == float("inf")


def test_a_third_process_waits_until_the_first_has_ended(ground):
    cluster = ground.start(PATIENT)
    ground.until(ground.count)
    cluster.supersede("worker")
    (ground.path / "count").unlink()
    ground.until(ground.count)
    cluster.preempt("worker", Preemption(signal.SIGTERM, grace=60, beside=0.0))
    cluster.poll()
    assert cluster.states()["worker"].incarnation == 1
    cluster.site.nodes.superseded["worker"].process.send(signal.SIGKILL)
    ground.until(lambda: cluster.states()["worker"].incarnation == 2)
    assert ground.exits() == [(0, -signal.SIGKILL, True)]


def test_a_kill_decides_over_a_preemption_before_it(ground):
    cluster = ground.start(PATIENT)
    ground.until(ground.count)
    cluster.preempt("worker", Preemption(signal.SIGUSR2, grace=60, notice=60, beside=0.0))
    cluster.kill("worker", None)
    cluster.wait_gone("worker")
    cluster.poll()
    assert cluster.states()["worker"].state == "dead"
    assert ground.site.nodes["worker"].next_at == float("inf")


def test_a_lemon_is_killed_again_until_it_has_failed_so_often(ground):
    cluster = ground.start()
    ground.until(ground.count)
    cluster.spoil("worker", 0.1, 0.05, times=3)
    ground.until(lambda: cluster.states()["worker"].incarnation == 3)
    (ground.path / "count").unlink()
    ground.until(lambda: ground.count() > 100)
    assert ground.exits() == [(number, -signal.SIGKILL, True) for number in range(3)]


def test_a_lemon_that_is_a_command_is_started_again_by_its_own_scheduler(ground):
    program = Program(f"{sys.executable} -c 'import time; time.sleep(60)'", restart="on-failure", restart_delay=0.05)
    cluster = ground.cluster
    cluster.start([NodeSpec("w", (), program=program)])
    cluster.spoil("w", 0.05, None, times=2)
    ground.until(lambda: cluster.states()["w"].incarnation == 2)
    ended = [(fields["killed"], fields["again"], fields["trusted"]) for event, fields in ground.events
             if event == "exit"]
    assert ended == [(True, True, True)] * 2


def test_a_lemon_is_killed_for_so_long_and_lives_after_that(ground):
    cluster = ground.start()
    ground.until(ground.count)
    cluster.spoil("worker", 0.1, 0.05, lasts=1.0)
    ground.until(lambda: cluster.states()["worker"].incarnation and cluster.states()["worker"].state == "running"
                 and ground.site.nodes["worker"].next_at == float("inf"))
    assert {status for _, status, _ in ground.exits()} == {-signal.SIGKILL}


def test_a_lemon_that_is_mended_lives(ground):
    cluster = ground.start()
    ground.until(ground.count)
    cluster.spoil("worker", 60.0, 0.05)
    ground.until(lambda: cluster.states()["worker"].incarnation == 1)
    cluster.mend("worker")
    assert ground.site.nodes["worker"].next_at == float("inf")
    cluster.kill("worker", 0.05)
    ground.until(lambda: cluster.states()["worker"].incarnation == 2)
    assert ground.site.nodes["worker"].next_at == float("inf")


def test_a_node_that_is_replaced_is_started_by_nobody_any_more(ground):
    cluster = ground.start()
    ground.until(ground.count)
    cluster.spoil("worker", 0.05, 0.05)
    ground.until(lambda: cluster.states()["worker"].incarnation == 2)
    cluster.retire("worker")
    assert ground.site.nodes["worker"].doomed is None, "who ends it again has one follow"
    ground.until(lambda: cluster.states()["worker"].state == "dead")
    assert ground.site.nodes["worker"].restart_at is None


def test_a_paused_node_stands_still_until_it_is_let_go(ground):
    cluster = ground.start()
    ground.until(ground.count)
    cluster.pause("worker")
    assert ground.owed() == ["continue"]
    assert cluster.states()["worker"].state == "paused"
    ground.until(lambda: cluster.residue() == ["worker is stopped"])
    before = ground.count()
    cluster.resume("worker")
    cluster.resume("worker")
    assert ground.owed() == []
    ground.until(lambda: ground.count() > before + 5)
    assert cluster.residue() == []


def test_a_node_that_stopped_itself_can_be_let_go(ground):
    cluster = ground.start()
    ground.until(ground.count)
    os.kill(cluster.states()["worker"].pid, signal.SIGSTOP)
    cluster.pause("worker")
    before = ground.count()
    cluster.resume("worker")
    ground.until(lambda: ground.count() > before + 5)


def test_what_is_done_to_a_node_that_is_gone_is_done_to_nobody(ground):
    cluster = ground.start()
    cluster.kill("worker", None)
    cluster.wait_gone("worker")
    for act in (cluster.pause, cluster.resume, cluster.supersede, cluster.revive, cluster.unlimit_writes):
        act("worker")
    cluster.preempt("worker", Preemption(signal.SIGTERM, grace=1.0, beside=0.0))
    cluster.throttle("worker", 0.5)
    cluster.limit_writes("worker", 100, 1.0)
    cluster.terminate("worker", 1.0)
    cluster.poll()
    assert ground.owed() == []
    assert cluster.states()["worker"].state == "dead"
    assert ground.exits() == [(0, -signal.SIGKILL, True)]


def test_a_superseded_process_stands_beside_its_successor_and_comes_back(ground):
    cluster = ground.start()
    old = cluster.states()["worker"].pid
    cluster.supersede("worker")
    assert ground.owed() == ["continue"]
    new = cluster.states()["worker"]
    assert (new.incarnation, new.state) == (1, "running")
    assert new.pid != old
    ground.until(lambda: state(old) == "T")
    cluster.revive("worker")
    assert ground.owed() == []
    ground.until(lambda: state(old) != "T")
    os.kill(old, signal.SIGTERM)  # as if it saw that it is superseded
    ground.until(ground.exits)
    assert ground.exits() == [(0, -signal.SIGTERM, True)]
    assert cluster.states()["worker"].pid == new.pid


def test_a_superseded_process_that_never_sees_it_goes_on_until_the_run_is_over(ground):
    cluster = ground.start()
    old = cluster.states()["worker"].pid
    cluster.supersede("worker")
    cluster.revive("worker")
    cluster.stop()
    assert not state(old)


def test_a_node_can_be_superseded_again_once_the_old_process_is_gone(ground):
    cluster = ground.start()
    for number in (1, 2):
        old = cluster.states()["worker"].pid
        cluster.supersede("worker")
        assert cluster.states()["worker"].incarnation == number
        cluster.revive("worker")
        os.kill(old, signal.SIGTERM)
        ground.until(lambda number=number: len(ground.exits()) == number)


def test_a_write_beyond_the_limit_fails_half_way_and_the_successor_has_no_limit(ground):
    cluster = ground.start(WRITER)
    ground.until(ground.count)
    cluster.limit_writes("worker", 50_000, 0.1)
    assert ground.owed() == ["lift"]
    ground.until(ground.exits)
    assert ground.exits() == [(0, 3, True)]
    assert (ground.path / "count.large").stat().st_size <= 50_000
    assert "File too large" in (ground.path / "logs" / "worker.0.log").read_text()
    assert ground.owed() == []
    cluster.unlimit_writes("worker")
    ground.until(lambda: (ground.path / "count.large").stat().st_size == 100_000)


def test_who_may_end_by_two_faults_may_do_so_until_both_are_over(ground):
    cluster, nodes = ground.start(), ground.site.nodes
    ground.until(ground.count)
    nodes.expect_no_space("worker", "f1", 0.05)
    nodes.expect_no_space("worker", "f2", 0.05)
    nodes.space_again("worker", "f1")
    os.kill(cluster.states()["worker"].pid, signal.SIGTERM)
    ground.until(lambda: cluster.states()["worker"].incarnation == 1)
    nodes.space_again("worker", "f2")
    os.kill(cluster.states()["worker"].pid, signal.SIGTERM)
    with pytest.raises(ClusterError, match="worker died on its own"):
        ground.until(lambda: len(ground.exits()) > 1)


def test_a_limit_that_is_taken_back_in_time_hurts_nobody(ground):
    cluster = ground.start()
    ground.until(ground.count)
    cluster.limit_writes("worker", 50_000, 0.1)
    assert cluster.residue() == ["worker may write no large file"]
    cluster.unlimit_writes("worker")
    assert ground.owed() == cluster.residue() == []


def test_a_nodes_state_can_be_looked_at_and_altered(ground):
    cluster = ground.start()
    folder = ground.path / "state"
    folder.mkdir()
    (folder / "a").write_bytes(b"12345")
    (folder / "b").write_bytes(b"678")
    assert cluster.state_files("hub") == {"a": 5, "b": 3}
    cluster.alter("hub", "a", lambda content: content[:2])
    cluster.alter("hub", "b", lambda content: None)
    assert cluster.state_files("hub") == {"a": 2}
    assert cluster.tape_size("hub") > 0


def test_a_hubs_links_are_those_of_its_callers(ground):
    cluster = ground.start()
    assert cluster.links_of("worker") == ["worker"]
    assert cluster.links_of("hub") == ["worker"]


@pytest.mark.skipif(not REAL, reason="DILOCO_CHAOS_TOXIPROXY names no toxiproxy-server")
def test_the_links_can_be_those_of_the_real_toxiproxy(make_ground):
    ground = make_ground(toxiproxy=REAL)
    cluster = ground.start()
    cluster.disable_link("worker")
    assert ground.owed() == ["enable"]
    assert cluster.residue() == ["worker is partitioned"]
    cluster.enable_link("worker")
    assert ground.owed() == cluster.residue() == []


def test_a_link_server_that_does_not_start_is_told_with_its_last_words(make_ground):
    ground = make_ground(toxiproxy="/bin/false")
    with pytest.raises(Exception, match="did not start"):
        ground.start()
