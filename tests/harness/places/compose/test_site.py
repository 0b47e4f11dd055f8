"""The cluster in containers runs any nodes, not only ours, and leaves nothing behind."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from diloco_chaos.harness.base.processes import identity, state, with_token
from diloco_chaos.harness.links.client import Links
from diloco_chaos.harness.links.toxic import Toxic
from diloco_chaos.harness.places.base import ClusterError, NodeSpec, Preemption
from diloco_chaos.harness.places.capabilities import Disks, LinkServer, MemoryLimits, Network
from diloco_chaos.harness.places.compose import readiness
from diloco_chaos.harness.places.compose.engine import ContainerWatch, DockerEngine, EngineError
from diloco_chaos.harness.places.compose.undos import Containers
from diloco_chaos.harness.record.reaper import heal
from diloco_chaos.harness.record.undo_log import Opened, read

ROOT = Path(__file__).parents[4]
LATENCY = Toxic("latency", "downstream", {"latency": 50, "jitter": 0})


@pytest.fixture
def ground(shared_ground):
    """The shared cluster, with its worker at work; a test must leave it so."""
    before = shared_ground.number()
    if shared_ground.cluster.states()["worker"].state == "dead":
        shared_ground.comes_back("worker", before)
    shared_ground.runs()
    return shared_ground


def there(pid):
    return state(pid) not in ("", "Z", "X")


# -- links -------------------------------------------------------------------------------------------------------------


def api(ground):
    """Toxiproxy, asked by somebody else than the cluster."""
    ports = ground.container("toxiproxy", 0).attrs["NetworkSettings"]["Ports"]["8474/tcp"]
    assert [port["HostIp"] for port in ports] == ["127.0.0.1"]
    return Links(f"127.0.0.1:{ports[0]['HostPort']}")


def test_nodes_are_connected_through_links_that_can_be_cut(ground):
    assert ground.reach() == b"hello 0"
    assert ground.cluster.links_of("worker") == ["worker"]
    assert ground.cluster.links_of("hub") == ["worker"]
    ground.cluster.disable_link("worker")
    assert not api(ground).enabled("worker")
    assert not ground.reached()
    assert ground.cluster.residue() == ["worker is partitioned"]
    ground.cluster.enable_link("worker")
    assert api(ground).enabled("worker")
    assert ground.reach() == b"hello 0"
    assert ground.cluster.residue() == []


def test_a_degraded_link_is_residue_until_it_is_restored(ground):
    ground.cluster.degrade("worker", [LATENCY])
    assert api(ground).toxics("worker") == [LATENCY]
    assert ground.cluster.residue() == ["toxic latency_downstream on worker"]
    ground.cluster.restore("worker", [LATENCY])
    ground.cluster.restore("worker", [LATENCY])
    assert api(ground).toxics("worker") == []
    assert ground.cluster.residue() == []


def test_links_that_are_restarted_are_as_they_were(ground):
    before = ground.cluster.address("worker")
    ground.cluster.degrade("worker", [LATENCY])
    ground.cluster.disable_link("worker")
    assert ground.cluster.having(LinkServer).restart_links() > 0
    ground.cluster.poll()
    assert ground.cluster.address("worker") == before
    assert api(ground).toxics("worker") == [LATENCY]
    assert not api(ground).enabled("worker")
    assert not ground.reached()
    ground.cluster.enable_link("worker")
    ground.cluster.restore("worker", [LATENCY])
    assert ground.reach() == b"hello 0"
    assert ground.cluster.residue() == []


def test_a_restart_of_the_links_that_is_told_of_late_is_no_death_of_theirs(ground, monkeypatch):
    take, held, late = ContainerWatch._take, [], threading.Event()

    def later(watch, *what):
        if late.is_set():
            take(watch, *what)
        else:
            held.append((watch, what))
    monkeypatch.setattr(ContainerWatch, "_take", later)
    ground.cluster.having(LinkServer).restart_links()
    ground.until(lambda: len(held) >= 3, poll=False)
    late.set()
    try:
        for watch, what in held:
            take(watch, *what)
        ground.cluster.poll()
    finally:
        toxiproxy = ground.container("toxiproxy", 0).id
        ground.site.outside.watch.exits.pop(toxiproxy, None)
        ground.site.outside.watch.meddled.pop(toxiproxy, None)


# -- ends --------------------------------------------------------------------------------------------------------------


def test_a_killed_node_is_started_again_by_the_cluster_and_by_nobody_else(ground):
    before, pid = ground.number(), ground.pid()
    ground.cluster.kill("worker", 0.0)
    ground.comes_back("worker", before)
    exit_ = ground.exits()[-1]
    assert (exit_["incarnation"], exit_["status"], exit_["killed"]) == (before, -signal.SIGKILL, True)
    assert "oom" not in exit_
    assert not there(pid)
    assert ground.pid() != pid
    assert (ground.path / "logs" / f"worker.{before}.log").exists()


def test_a_terminated_node_ends_by_itself(ground):
    before = ground.number()
    ground.order("signal.signal(signal.SIGTERM, lambda *_: sys.exit(3))")
    ground.cluster.terminate("worker", 0.0)
    ground.comes_back("worker", before)
    assert (ground.exits()[-1]["status"], ground.exits()[-1]["killed"]) == (3, True)


def test_a_node_that_ignores_sigterm_is_killed(ground):
    before = ground.number()
    ground.order("signal.signal(signal.SIGTERM, signal.SIG_IGN)")
    ground.cluster.terminate("worker", 0.0)
    ground.comes_back("worker", before)
    assert ground.exits()[-1]["status"] == -signal.SIGKILL


def test_a_node_that_joined_runs_over_a_link_of_its_own_and_stays_dead_where_it_was_killed_for_good(ground):
    ground.cluster.join(ground.worker("late"))
    ground.runs("late")
    assert ground.cluster.links_of("hub") == ["worker", "late"]
    assert ground.reach("late") == b"hello 0"
    ground.cluster.kill("late", None)
    ground.cluster.wait_gone("late")
    ground.cluster.poll()
    assert ground.cluster.states()["late"].state == "dead"
    assert [one["status"] for one in ground.exits("late")] == [-signal.SIGKILL]
    ground.cluster.kill("late", None)
    ground.cluster.pause("late")
    ground.cluster.resume("late")
    ground.cluster.throttle("late", 0.5)
    ground.cluster.throttle("late", None)
    ground.cluster.limit_writes("late", 1000, 0.0)
    ground.cluster.unlimit_writes("late")
    ground.cluster.having(MemoryLimits).exhaust_memory("late", None)
    assert ground.cluster.residue() == []


def test_memory_that_runs_out_is_recorded_as_that(ground):
    before = ground.number()
    ground.cluster.having(MemoryLimits).exhaust_memory("worker", 0.0)
    ground.comes_back("worker", before)
    exit_ = ground.exits()[-1]
    assert (exit_["status"], exit_["killed"], exit_.get("oom")) == (-signal.SIGKILL, True, True)
    assert ground.cluster.residue() == []


# -- standing still ----------------------------------------------------------------------------------------------------


def test_a_paused_node_stands_still_until_it_is_resumed(ground):
    ground.cluster.pause("worker")
    assert ground.container().status == "paused"
    assert ground.cluster.states()["worker"].state == "paused"
    assert ground.cluster.residue() == ["worker is stopped"]
    count = ground.count()
    ground.cluster.poll()
    assert ground.count() == count
    ground.cluster.resume("worker")
    ground.cluster.resume("worker")
    ground.runs()
    assert ground.cluster.residue() == []


def test_a_node_that_stopped_itself_is_taken_over_and_goes_on(ground):
    pid = ground.pid()
    ground.order("os.kill(os.getpid(), signal.SIGSTOP)")
    ground.until(lambda: state(pid) == "T")
    ground.cluster.pause("worker")
    assert ground.cluster.residue() == ["worker is stopped"]
    ground.cluster.resume("worker")
    ground.runs()
    assert ground.cluster.residue() == []


def test_a_node_that_stands_still_by_itself_is_residue(ground):
    pid = ground.pid()
    ground.order("os.kill(os.getpid(), signal.SIGSTOP)")
    ground.until(lambda: state(pid) == "T")
    try:
        assert ground.cluster.residue() == ["worker is stopped"]
    finally:
        os.kill(pid, signal.SIGCONT)


def test_a_node_that_dies_while_it_is_paused_can_be_resumed_before_anybody_noticed(ground):
    before, pid = ground.number(), ground.pid()
    ground.cluster.pause("worker")
    ground.cluster.kill("worker", 0.0)
    ground.until(lambda: not there(pid), poll=False)
    try:
        ground.cluster.resume("worker")
    finally:
        ground.site.nodes["worker"].paused = False
        ground.comes_back("worker", before)


def test_a_paused_node_that_is_asked_to_end_can_be_resumed_while_it_takes_its_time(ground):
    before = ground.number()
    ground.order("signal.signal(signal.SIGTERM, signal.SIG_IGN)")
    ground.cluster.pause("worker")
    ground.cluster.terminate("worker", 0.0)
    ground.until(lambda: ground.container().status != "paused", poll=False, seconds=1.5)
    try:
        ground.cluster.resume("worker")
    finally:
        ground.site.nodes["worker"].paused = False
        ground.comes_back("worker", before)


def quota(ground):
    return ground.container().attrs["HostConfig"]["CpuQuota"]


def test_a_throttled_node_has_a_quota_that_is_taken_back(ground):
    usual = quota(ground)
    ground.cluster.throttle("worker", 0.5)
    assert 0 < quota(ground) < usual
    ground.cluster.throttle("worker", None)
    ground.cluster.throttle("worker", None)
    assert quota(ground) == usual
    assert ground.cluster.residue() == []
    ground.runs()


def test_a_throttled_node_that_was_looked_at_gets_its_quota_back_all_the_same(ground):
    usual = quota(ground)
    ground.cluster.throttle("worker", 0.5)
    try:
        assert ground.cluster.residue() == ["worker is throttled"]
        ground.cluster.throttle("worker", None)
        assert quota(ground) == usual
        assert ground.cluster.residue() == []
    finally:
        ground.container().update(cpu_period=100_000, cpu_quota=usual)
        ground.site.nodes["worker"].process.container.reload()


def test_a_share_that_varies_is_drawn_anew_and_ends(ground):
    usual, seen = quota(ground), set()
    ground.cluster.throttle("worker", 0.5, 0.2, seed=1)
    ground.until(lambda: seen.add(quota(ground)) or len(seen) > 1)
    ground.cluster.throttle("worker", None)
    assert quota(ground) == usual


def test_a_superseded_node_stands_still_beside_its_successor_and_is_revived(ground):
    old = ground.number()
    ground.cluster.supersede("worker")
    ground.comes_back("worker", old)
    assert ground.container(number=old).status == "paused"
    assert ground.cluster.residue() == ["worker is stopped"]
    before = ground.count(number=old)
    ground.cluster.revive("worker")
    ground.until(lambda: ground.count(number=old) > before)
    ground.container(number=old).kill()  # as if it saw that it is superseded
    ground.until(lambda: ground.exits()[-1:] and ground.exits()[-1]["incarnation"] == old)
    assert ground.exits()[-1]["status"] == -signal.SIGKILL
    assert ground.number() == old + 1
    ground.runs()
    assert ground.cluster.residue() == []


def test_a_preempted_node_works_beside_its_successor_until_it_is_killed(ground):
    old = ground.number()
    ground.order("signal.signal(signal.SIGTERM, signal.SIG_IGN)")
    ground.cluster.preempt("worker", Preemption(signal.SIGTERM, grace=20, beside=0.0))
    ground.comes_back("worker", old)
    ground.runs(number=old)
    ground.container(number=old).kill()  # it has waited for long enough
    ground.until(lambda: ground.exits()[-1:] and ground.exits()[-1]["incarnation"] == old)
    assert ground.number() == old + 1
    ground.runs()
    assert ground.cluster.residue() == []


# -- the network, the disk ---------------------------------------------------------------------------------------------

ASK = """
try:
    with socket.create_connection(("{address}", 7001), 2) as link:
        write("answer", link.recv(20).decode())
except OSError as error:
    write("answer", "failed")
"""


def answer(ground):
    networks = ground.container("toxiproxy", 0).attrs["NetworkSettings"]["Networks"]
    ground.order(ASK.format(address=networks[f"{ground.path.name}_training"]["IPAddress"]))
    path = ground.path / "state" / "answer"
    ground.until(path.exists)
    text = path.read_text()
    path.unlink()
    return text


def test_a_node_off_the_network_reaches_nobody_until_it_is_back(ground):
    assert answer(ground) == "hello 0"
    ground.cluster.having(Network).disconnect("worker", True)
    assert ground.cluster.residue() == ["worker is off the network"]
    assert answer(ground) == "failed"
    ground.cluster.having(Network).disconnect("worker", False)
    assert ground.cluster.residue() == []
    assert answer(ground) == "hello 0"


def test_a_hub_off_the_network_is_found_again_under_its_name(ground):
    ground.cluster.having(Network).disconnect("hub", True)
    assert ground.cluster.residue() == ["hub is off the network"]
    assert not ground.reached()
    ground.cluster.having(Network).disconnect("hub", False)
    ground.until(ground.reached)
    assert ground.cluster.residue() == []


def test_a_node_that_was_killed_off_the_network_comes_back_on_it_and_the_fault_can_end(ground):
    before = ground.number()
    ground.cluster.having(Network).disconnect("worker", True)
    ground.cluster.kill("worker", 0.0)
    ground.comes_back("worker", before)
    ground.cluster.having(Network).disconnect("worker", False)
    assert ground.cluster.residue() == []
    assert answer(ground) == "hello 0"


def in_hub(ground, command):
    done = ground.container("hub").exec_run(["sh", "-c", f"cd {ground.path}/small && {command}"])
    return done.exit_code, done.output.decode()


def test_a_small_disk_is_full_until_it_is_emptied(ground):
    assert in_hub(ground, "echo mine > kept") == (0, "")
    filled = ground.cluster.having(Disks).fill_disk("hub", 0.0)
    assert (1 << 20) * 0.9 < filled <= 1 << 20
    assert ground.cluster.residue() == ["the small disk is full"]
    code, said = in_hub(ground, "head -c 100000 /dev/zero > more")
    assert code != 0
    assert "No space left on device" in said
    ground.cluster.having(Disks).empty_disk("hub")
    ground.cluster.having(Disks).empty_disk("hub")
    assert ground.cluster.residue() == []
    assert in_hub(ground, "head -c 100000 /dev/zero > more") == (0, "")
    assert ground.cluster.state_files("hub") == {"kept": 5, "more": 100_000}
    assert not list((ground.path / "small").glob("*")), "it lies on a disk of its own"


def test_a_file_on_a_small_disk_can_be_altered(ground):
    assert in_hub(ground, "rm -f * && printf whole > kept") == (0, "")
    ground.cluster.alter("hub", "kept", lambda data: data[:3])
    assert in_hub(ground, "cat kept") == (0, "who")
    ground.cluster.alter("hub", "kept", lambda data: None)
    assert ground.cluster.state_files("hub") == {}


def test_a_file_beside_the_run_can_be_altered(ground):
    ground.order("write('kept', 'whole')")
    ground.until(lambda: (ground.path / "state" / "kept").exists())
    ground.cluster.alter("worker", "kept", lambda data: data[:3])
    assert (ground.path / "state" / "kept").read_text() == "who"
    ground.cluster.alter("worker", "kept", lambda data: None)
    assert "kept" not in ground.cluster.state_files("worker")


def test_a_limit_of_file_sizes_is_felt_and_taken_back(ground):
    large = "try:\n    write('large', 'x' * 5000)\nexcept OSError as error:\n    write('observed', error.errno)"
    ground.order("signal.signal(signal.SIGXFSZ, signal.SIG_IGN)")
    ground.cluster.limit_writes("worker", 1000, 0.0)
    assert ground.owed() == ["lift", "containers"]
    assert ground.cluster.residue() == ["worker may write no large file"]
    ground.order(large)
    ground.until(lambda: (ground.path / "state" / "observed").exists())
    assert (ground.path / "state" / "observed").read_text() == "27"
    assert not (ground.path / "state" / "large").exists()
    ground.cluster.unlimit_writes("worker")
    ground.cluster.unlimit_writes("worker")
    assert ground.owed() == ["containers"]
    assert ground.cluster.residue() == []
    ground.order(large)
    ground.until(lambda: (ground.path / "state" / "large").exists())


def test_a_node_that_dies_of_its_limit_is_started_again_also_where_the_limit_ends_before_anybody_noticed(ground):
    before, pid = ground.number(), ground.pid()
    ground.cluster.limit_writes("worker", 1000, 0.0)
    ground.order("signal.signal(signal.SIGXFSZ, signal.SIG_DFL); write('large', 'x' * 5000)")
    ground.until(lambda: not there(pid), poll=False)
    node = ground.site.nodes["worker"]
    try:
        ground.cluster.unlimit_writes("worker")
        ground.comes_back("worker", before)
    finally:
        if node.alive:
            node._limits, node.expected_exit = None, True
            node._undos.complete("limit")
            ground.comes_back("worker", before)
    assert ground.exits()[-1]["killed"] is True


def test_what_is_done_to_a_node_that_is_gone_is_done_to_nobody_also_before_anybody_noticed(ground):
    before, pid, failed = ground.number(), ground.pid(), []
    ground.cluster.kill("worker", 0.0)
    ground.until(lambda: not there(pid), poll=False)
    for act in (lambda: ground.cluster.pause("worker"), lambda: ground.cluster.resume("worker"),
                lambda: ground.cluster.throttle("worker", 0.5), lambda: ground.cluster.throttle("worker", None),
                lambda: ground.cluster.limit_writes("worker", 1000, 0.0),
                lambda: ground.cluster.unlimit_writes("worker"),
                lambda: ground.cluster.having(MemoryLimits).exhaust_memory("worker", 0.0),
                lambda: ground.cluster.having(Network).disconnect("worker", True),
                lambda: ground.cluster.having(Network).disconnect("worker", False)):
        try:
            act()
        except Exception as error:
            failed.append(repr(error))
    node = ground.site.nodes["worker"]
    node.paused = False
    node.expect_exit(0.0)
    ground.comes_back("worker", before)
    assert failed == []


def test_a_paused_node_can_be_given_no_limit_and_that_is_said(ground):
    ground.cluster.pause("worker")
    try:
        with pytest.raises(ClusterError, match="worker is paused: its limit can't be changed"):
            ground.cluster.limit_writes("worker", 1 << 20, 0.0)
    finally:
        ground.cluster.resume("worker")
    ground.runs()


def test_a_killed_hub_comes_back_under_its_name(ground):
    before = ground.number("hub")
    assert in_hub(ground, "rm -f * && printf whole > kept") == (0, "")
    ground.cluster.kill("hub", 0.0)
    ground.cluster.wait_gone("hub")
    ground.comes_back("hub", before)
    ground.until(ground.reached)
    assert ground.reach() == f"hello {before + 1}".encode()
    assert in_hub(ground, "cat kept") == (0, "whole")


def test_a_hub_that_was_dialled_while_it_died_is_reached_again_within_seconds(ground):
    """A link dials for one connection at a time, and an address that has just gone answers to nobody."""
    for _ in range(5):
        before = ground.number("hub")
        ground.cluster.kill("hub", 0.0)
        ground.cluster.wait_gone("hub")
        ground.until(lambda: ground.number("hub") > before)  # noqa: B023 - it is called here
        ground.until(ground.reached)  # from now on, while the old container is taken away and the new one is made


def test_two_clusters_at_once_dont_see_each_other(ground, contained):
    other = contained()
    other.start(other.hub(), other.worker())
    ours, theirs = (ground.engine.labelled(run) for run in (ground.run, other.run))
    assert not {thing.name for thing in ours} & {thing.name for thing in theirs}
    assert {thing.kind for thing in theirs} == {"container", "network", "volume"}
    before = other.number()
    other.cluster.kill("worker", 0.0)
    other.comes_back("worker", before)
    other.cluster.disable_link("worker")
    assert ground.reached()
    pids = [other.pid(), other.pid("hub")]
    other.stop()
    assert [pid for pid in pids if there(pid)] == []
    assert ground.engine.labelled(other.run) == []
    assert other.owed() == []
    assert [fields for event, fields in other.events if event == "warning"] == []
    assert {thing.name for thing in ground.engine.labelled(ground.run)} == {thing.name for thing in ours}
    ground.runs()
    assert ground.reached()


# -- clusters of their own ---------------------------------------------------------------------------------------------


def test_a_hub_that_dies_at_its_start_is_told_with_the_end_of_its_log(contained):
    ground = contained()
    with pytest.raises(ClusterError, match=r"hub did not start \(exit code 1\):\n(.|\n)*no such thing"):
        ground.start(ground.hub("raise SystemExit('no such thing')"))


def test_a_node_that_dies_on_its_own_is_told_with_the_end_of_its_log(contained):
    ground = contained()
    ground.start(ground.hub(), ground.worker(source="import sys; print('the reason', file=sys.stderr); sys.exit(7)"))
    with pytest.raises(ClusterError, match=r"worker died on its own \(exit code 7\):\n  the reason"):
        ground.until(lambda: False)


def test_a_stop_that_is_repeated_is_harmless(contained):
    ground = contained()
    ground.start(ground.hub())
    ground.stop()
    ground.cluster.stop()
    assert ground.engine.labelled(ground.run) == []
    assert [fields for event, fields in ground.events if event == "warning"] == []


def test_a_stop_lets_nodes_end_and_goes_on_as_soon_as_they_did(contained, monkeypatch):
    monkeypatch.setattr("diloco_chaos.harness.places.nodes.nodes.STOP_TIMEOUT_S", 15.0)
    ground = contained()
    ground.start(ground.hub(), ground.worker(
        source="import signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: (print('bye', flush=True), "
               "sys.exit(0)))\nprint('here', flush=True)\nwhile True: time.sleep(0.1)"))
    ground.until(lambda: b"here" in ground.container().logs())
    latest = time.monotonic() + 14
    ground.stop()
    assert "bye" in (ground.path / "logs" / "worker.0.log").read_text()
    assert time.monotonic() < latest, "nodes that had ended long ago were waited for"


@pytest.mark.parametrize(("meddle", "words"), [
    (lambda container: container.remove(force=True), "removed"),
    (lambda container: container.stop(timeout=5), "stopped")])
def test_a_container_that_somebody_else_ends_is_told_as_that(contained, meddle, words):
    ground = contained()
    ground.start(ground.hub())
    by_hand = threading.Thread(target=meddle, args=(ground.container("hub"),))
    by_hand.start()
    try:
        with pytest.raises(ClusterError, match=f"hub's container was {words} from outside"):
            ground.until(lambda: False)
    finally:
        by_hand.join()


def test_a_toxiproxy_that_somebody_else_removes_is_told_as_that_and_not_by_what_then_cant_be_asked(contained):
    ground = contained()
    ground.start(ground.hub())
    ground.container("toxiproxy", 0).remove(force=True)
    with pytest.raises(ClusterError, match="toxiproxy's container was removed from outside"):
        ground.until(lambda: False)


def test_a_toxiproxy_that_dies_after_it_was_restarted_died_on_its_own(contained):
    ground = contained()
    ground.start(ground.hub(), ground.worker())
    ground.cluster.having(LinkServer).restart_links()
    ground.until(ground.reached)
    ground.container("toxiproxy", 0).kill()
    with pytest.raises(ClusterError, match="Toxiproxy died on its own"):
        ground.until(lambda: False)


def test_a_start_that_is_interrupted_leaves_nothing(contained, monkeypatch):
    ground = contained()

    def interrupted(name):
        ground.site.nodes.start(ground.worker(), 0)  # under way in its own thread
        raise KeyboardInterrupt
    monkeypatch.setattr(ground.site.nodes, "await_listening", interrupted)
    ground.site.links.addresses["worker"] = "toxiproxy:7001"
    with pytest.raises(KeyboardInterrupt):
        ground.start(ground.hub())
    ground.stop()
    assert ground.engine.labelled(ground.run) == []
    assert with_token(ground.token) == []
    assert ground.owed() == []


def test_a_cluster_that_was_never_started_can_be_stopped(contained):
    ground = contained()
    ground.cluster.stop()
    ground.cluster.stop()
    assert ground.owed() == []


def test_a_run_whose_name_another_one_has_leaves_that_one_alone(contained):
    first, second = contained("test-same-name"), contained("test-same-name")
    first.start(first.hub())
    things = {thing.name for thing in first.engine.labelled(first.run)}
    try:
        second.start(second.hub())
    except ClusterError as error:
        assert "test-same-name" in str(error)
    second.stop()
    assert {thing.name for thing in first.engine.labelled(first.run)} == things
    assert second.engine.labelled(second.run) == []
    first.cluster.poll()
    assert list((second.path / "tape").iterdir()) == []


HARNESS = """
import sys, time
from pathlib import Path
from diloco_chaos.harness.places.base import NodeSpec
from diloco_chaos.harness.places.cluster import Cluster
from diloco_chaos.harness.places.compose.site import ComposeSite
from diloco_chaos.harness.record.undo_log import UndoLog
run, token, source = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
undo_log = UndoLog(run.parent / "undo_log.jsonl", token)
cluster = Cluster(ComposeSite(run, lambda event: None, undo_log))
argv = ("{python}", "-c", source, str(run), "{host}", "{listen}", "{incarnation}")
cluster.start([NodeSpec("hub", argv, listens=True)])
cluster.pause("hub")
print("up", flush=True)
time.sleep(600)
"""


def harness(folder, token, source):
    folder.mkdir(mode=0o755)
    (folder / "tape").mkdir()
    return subprocess.Popen([sys.executable, "-c", HARNESS, str(folder), token, source], cwd=ROOT,
                            stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("at", ["up", "half"])
def test_a_harness_that_is_killed_leaves_what_its_undo_log_undoes(engine, tmp_path, at):
    token = os.urandom(16).hex()
    run, folder = token[:12], tmp_path / f"test-{token[:8]}"
    source = "import json, socket, sys, time\n" + (
        "s = socket.create_server((sys.argv[2], int(sys.argv[3])))\nopen(f'{sys.argv[1]}/tape/hub.0.jsonl', 'a').write("
        "json.dumps({'t': 0, 'node': 'hub', 'inc': 0, 'event': 'listening', 'port': 7000}) + chr(10))\n"
        "time.sleep(600)")
    process = harness(folder, token, source)
    undo_log = tmp_path / "undo_log.jsonl"
    try:
        if at == "up":
            assert process.stdout.readline() == "up\n"
        else:
            end = time.monotonic() + 30
            while not any(thing.kind == "network" for thing in engine.labelled(run)):
                assert time.monotonic() < end, "it never began"
        process.kill()
        process.wait()
        assert identity(process.pid) is None
        assert [undo.entry for undo in read(undo_log).undos] == ["containers"]
        did = heal(undo_log)  # nothing, where a run that began meanwhile on this engine had cleaned up already
        assert set(map(str, did)) <= {f"containers, networks and volumes of {run} removed"}
        assert engine.labelled(run) == []
        assert with_token(token) == []
        assert not undo_log.exists()
        assert heal_again(engine, tmp_path, token) == []
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        engine.remove(run)


def heal_again(engine, folder, token):
    """As from an undo log of which only the last line, that all is undone, was lost."""
    path = folder / "again.jsonl"
    entries = [Opened(token=token, pid=1), Containers(number=1, engine=engine.url, run=token[:12])]
    path.write_text("".join(entry.model_dump_json() + "\n" for entry in entries))
    return heal(path)


def test_a_disk_of_its_own_is_for_nodes_that_others_connect_to(contained):
    ground = contained()
    spec = NodeSpec("keeper", ("{python}", "-c", "import time; time.sleep(600)"), connects_to="hub", state="small",
                    disk=1 << 20)
    with pytest.raises(ClusterError, match="keeper: only a node that others connect to"):
        ground.start(ground.hub(), spec)
    ground.stop()
    assert ground.engine.labelled(ground.run) == []


def test_everything_is_ready_here(engine):
    assert isinstance(engine, DockerEngine)
    assert engine.version


def test_an_image_with_another_trainer_or_none_is_refused_with_how_to_make_it(engine, monkeypatch):
    again = "build it again: docker build -f docker/Dockerfile"
    with monkeypatch.context() as patch:
        patch.setattr(readiness, "node_digest", lambda: "another")
        with pytest.raises(EngineError, match=f"^image diloco-chaos:.* holds another version of the trainer.*{again}"):
            readiness.must_be_ready()
    monkeypatch.setenv("DILOCO_CHAOS_IMAGE", "python:3.11-slim")
    with pytest.raises(EngineError, match=f"^image python:3.11-slim holds another version .*, or none; {again}"):
        readiness.must_be_ready()
