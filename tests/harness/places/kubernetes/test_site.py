"""The cluster in pods, with an API server that is made up: its pods are agents on this machine, each in a folder of its
own. What a real one does differently, tests/alone/test_kubernetes.py sees."""

from __future__ import annotations

import signal
import sys
import time

import pytest

from diloco_chaos.harness.base.machine import Sample
from diloco_chaos.harness.places.base import ClusterError, NodeSpec
from diloco_chaos.harness.places.capabilities import Drains, Machines, Pods, Watched
from diloco_chaos.harness.record.tape.events import Start
from diloco_chaos.harness.trainers.core.programs import Program
from fake_kubernetes import WORKER, end_container


def test_nodes_run_in_pods_and_what_they_write_is_here(ground):
    assert [fields["host"] for fields in (*ground.of("spawn", "hub"), *ground.of("spawn"))] == ["hub-0", "worker-0"]
    started = ground.until(lambda: ground.tape().of(Start, node="worker"))
    assert 0 < started[0].t < 60
    assert ground.cluster.state_files("hub") == {"kept": 4}


def test_one_that_was_killed_comes_back_in_the_same_pod(ground):
    ground.cluster.kill("worker", 0.1)
    ground.back()
    assert [(one["status"], one["killed"]) for one in ground.of("exit")] == [(-signal.SIGKILL, True)]
    assert [one["host"] for one in ground.of("spawn")] == ["worker-0", "worker-0"]


@pytest.mark.parametrize("evict", [False, True])
def test_one_whose_pod_is_taken_away_comes_back_in_another(ground, evict):
    ground.cluster.having(Pods).delete_pod("worker", 0.1, evict=evict)
    ground.back()
    assert ground.of("exit")[0]["status"] in (-signal.SIGTERM, -signal.SIGKILL)
    assert [one["host"] for one in ground.of("spawn")] == ["worker-0", "worker-1"]


SAVES = WORKER.replace("time.sleep(600)", """
import signal
def save(number, frame):
    time.sleep(3)
    open("saved", "w").write("saved")
    sys.exit(7)
signal.signal(signal.SIGTERM, save)
open("ready", "w").close()
time.sleep(600)
""")


@pytest.mark.parametrize(("grace", "status"), [(20.0, 7), (2.0, -signal.SIGKILL)])
def test_one_whose_pod_is_deleted_has_its_grace_period_to_save(make_ground, grace, status):
    ground = make_ground()
    ground.start(SAVES)
    ground.until((ground.path / "pods/worker-0/ready").exists)
    ground.cluster.having(Pods).delete_pod("worker", 0.1, grace=grace)
    ground.until(lambda: ground.of("exit"))
    assert ground.of("exit")[0]["status"] == status
    assert (ground.path / "pods/worker-0/saved").exists() == (status == 7)


def test_a_pod_that_is_gone_and_nobody_took_ends_the_run_with_a_sentence(ground):
    end_container(ground.api.there["worker-0"].process)
    with pytest.raises(ClusterError, match=r"worker died on its own \(killed by SIGKILL\)"):
        ground.until(lambda: False, seconds=20)
    assert ground.of("exit")[0]["lost"] == "its pod ended: Gone"


def test_where_the_api_server_is_away_a_pod_is_made_once_it_is_back(ground):
    ground.cluster.having(Pods).delete_pod("worker", 0.1)
    ground.api.away = True
    ground.until(lambda: ground.of("exit"))
    end = time.monotonic() + 1.5
    ground.until(lambda: time.monotonic() > end)
    assert len(ground.of("spawn")) == 1
    ground.api.away = False
    ground.back()


def test_another_pod_of_the_run_s_own_stands_beside_the_nodes_again(ground):
    asked = []
    ask = ground.site.owner.host.agent.soon
    ground.site.owner.host.agent.soon = lambda do, **fields: (asked.append(do), ask(do, **fields))
    ground.api.delete_pod("", "owner-x")
    (ground.path / "pods/owner-x").rename(ground.path / "pods/owner-w")
    ground.api.let_go_on("", "owner")
    ground.until(lambda: asked == ["spawn"])


def test_clocks_are_compared_and_told(ground):
    told = ground.until(lambda: ground.of("clock"))
    assert abs(told[0]["ahead"]) <= 2 * told[0]["error"] + 0.01  # it is one and the same clock
    assert 0 < told[0]["error"] < 1


def test_what_pods_use_is_the_run_s(ground):
    here = Sample(1.0, 2, 0.5, 0.3, 1.2, 0.0, 0.02, 0.4, 0.1, 0.0, 1.0, 2.0, 0.1, 0.5, 0.01)
    found, = ground.until(lambda: ground.cluster.having(Watched).machines(here))
    assert found.machine == "harness"  # all pods are on this machine
    assert found.ours >= 0.3


def test_a_drained_machine_gets_no_pod_any_more(ground):
    machine = ground.until(lambda: ground.site.hosts.machine(ground.site.hosts["worker"]))
    ground.cluster.having(Drains).drain("worker", 0.1)
    ground.back()
    newest = [made for made in ground.api.made if made["kind"] == "Pod"][-1]
    assert machine in str(newest["spec"]["affinity"]["nodeAffinity"])
    assert (ground.path / "pods/worker-0.deleted").exists()


def test_a_machine_whose_power_was_taken_is_brought_back_at_the_end(make_ground, tmp_path):
    ground = make_ground(commands={"node_power_loss": f"touch {tmp_path}/off-{{machine}}",
                                   "node_power_return": f"touch {tmp_path}/on-{{machine}}"})
    ground.start()
    machine = ground.until(lambda: ground.site.hosts.machine(ground.site.hosts["worker"]))
    ground.cluster.having(Machines).lose_machine("worker", 0.1)
    assert (tmp_path / f"off-{machine}").exists()
    assert "command" in ground.owed()
    ground.back()
    assert ground.of("exit")[0]["lost"] == f"{machine}, which it was on, has lost its power"
    ground.cluster.stop()
    assert (tmp_path / f"on-{machine}").exists()
    assert ground.owed() == []


def test_a_command_of_the_user_s_that_fails_is_told_with_what_it_said(make_ground):
    ground = make_ground(commands={"node_partition": "sh -c 'echo no such switch >&2; exit 3'",
                                   "node_partition_heal": "true"})
    ground.start()
    ground.until(lambda: ground.site.hosts.machine(ground.site.hosts["worker"]))
    with pytest.raises(ClusterError, match="exit status 3: no such switch"):
        ground.cluster.having(Machines).part_machine("worker", True)
    ground.cluster.having(Machines).part_machine("worker", False)
    assert "command" not in ground.owed()


def test_a_straggler_s_pod_may_use_less_for_a_while(ground):
    ground.cluster.throttle("worker", 0.5)
    pod, limits = ground.api.resized[-1]
    assert (pod, limits["cpu"]) == ("worker-0", "500m")  # half of one, for nobody knows yet what it uses
    assert "worker is throttled" in ground.cluster.residue()
    ground.cluster.throttle("worker", None)
    assert ground.api.resized[-1][1]["cpu"] == "1"
    assert ground.cluster.residue() == []


def test_a_straggler_that_is_killed_leaves_no_limit_to_the_next_one_in_its_pod(ground):
    ground.cluster.throttle("worker", 0.5)
    ground.cluster.kill("worker", 0.1)
    ground.back()
    assert [(pod, limits["cpu"]) for pod, limits in ground.api.resized] == [("worker-0", "500m"), ("worker-0", "1")]


def test_a_paused_one_stands_still_until_it_is_let_go_on(ground):
    ground.cluster.pause("worker")
    ground.until(lambda: ground.cluster.residue() == ["worker is stopped"])
    ground.cluster.resume("worker")
    ground.until(lambda: ground.cluster.residue() == [])


def test_files_of_state_are_altered_where_they_are(ground):
    ground.cluster.alter("hub", "kept", lambda content: content.upper())
    assert (ground.path / "pods/hub-0/state/kept").read_bytes() == b"KEPT"
    ground.cluster.alter("hub", "kept", lambda content: None)
    assert ground.cluster.state_files("hub") == {}


def test_a_command_finds_its_files_in_its_pod_at_each_start_also_beside_its_old_process(make_ground):
    ground = make_ground()
    program = Program(f'{sys.executable} -c "import time; time.sleep(600)"', files={"conf/at.json": '{"of": "{name}"}'})
    ground.cluster.start([NodeSpec("worker", (), program=program)])
    file = ground.path / "pods/worker-0/files/worker/conf/at.json"
    assert file.read_text() == '{"of": "worker"}'
    file.write_text("spoilt")
    ground.cluster.supersede("worker")
    ground.until(lambda: file.read_text() != "spoilt")
    ground.cluster.revive("worker")
    assert [one["incarnation"] for one in ground.of("spawn")] == [0, 1]
    assert ground.of("exit") == []


def test_what_could_not_be_removed_stays_owed_and_is_told(ground):
    ground.api.refuses = True
    ground.cluster.stop()
    assert ground.owed() == ["namespace"]
    assert ("warning", {"reason": "not removed yet: namespace, which is being terminated"}) in ground.events


def test_so_it_is_while_the_api_server_is_away(ground):
    ground.api.away = True
    ground.cluster.stop()
    assert ground.owed() == ["namespace"]


def test_of_a_run_whose_command_can_not_be_started_nothing_is_left(make_ground):
    ground = make_ground()
    with pytest.raises(ClusterError, match=r"worker: spawn: FileNotFoundError: .*no-such-program"):
        ground.start(program="no-such-program")
    ground.cluster.stop()
    assert (ground.owed(), ground.api.removed) == ([], True)
