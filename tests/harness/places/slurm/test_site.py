"""The cluster in Slurm, whose commands are made up: jobs are processes of this machine, each in a folder of its own.
What a real one does differently, tests/alone/test_slurm.py sees."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path

import pytest

import fake_slurm
import remote_runs
from diloco_chaos.harness.base.machine import Sample
from diloco_chaos.harness.links.toxic import Toxic
from diloco_chaos.harness.places.base import ClusterError, NodeSpec
from diloco_chaos.harness.places.capabilities import Jobs, Machines, Watched
from diloco_chaos.harness.places.cluster import Cluster
from diloco_chaos.harness.places.slurm.queue import SlurmAwayError
from diloco_chaos.harness.places.slurm.settings import SlurmSettings
from diloco_chaos.harness.places.slurm.site import SlurmSite
from diloco_chaos.harness.record.tape.events import Start
from diloco_chaos.harness.trainers.core.programs import Program
from remote_runs import TOKEN

HUB = """
import json, os, socket, sys, time
run, inc, host, port = sys.argv[1:5]
held = socket.create_server((host, int(port)))
os.makedirs(f"{run}/tape", exist_ok=True)
os.makedirs(f"{run}/state", exist_ok=True)
open(f"{run}/state/kept", "w").write(open(json.load(open(f"{run}/cluster.json"))["data"]).read())
with open(f"{run}/tape/hub.{inc}.jsonl", "a") as tape:
    told = {"t": 0, "node": "hub", "inc": int(inc), "event": "listening", "port": held.getsockname()[1]}
    tape.write(json.dumps(told) + chr(10))
time.sleep(600)
"""
WORKER = """
import json, os, sys, time
run, inc, epoch, link = sys.argv[1:5]
os.makedirs(f"{run}/tape", exist_ok=True)
with open(f"{run}/tape/worker.{inc}.jsonl", "a") as tape:
    t = time.monotonic() - float(epoch)
    told = {"t": t, "node": "worker", "inc": int(inc), "event": "start", "sources": link, "pid": os.getpid()}
    tape.write(json.dumps(told) + chr(10))
while True:
    time.sleep(0.01)
"""
SLOW = Toxic(name="slow", type="latency", stream="upstream", attributes={"latency": 5})
HERE = Sample(1.0, 2, 1.0, 0.1, 0.1, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0)


class Ground(remote_runs.Ground):
    """Of jobs."""

    def __init__(self, path, **settings):
        super().__init__(path, json.dumps({"data": str(path / "corpus"), "elapsed": 0}))
        (path / "corpus").write_text("words")
        self.site = SlurmSite(self.run, self.record, self.undo_log,
                              SlurmSettings(folder=str(path), **{"start_within": 20, **settings}))
        self.cluster = Cluster(self.site)

    def start(self, worker_machine=""):
        run = str(self.run)
        hub = NodeSpec("hub", (sys.executable, "-c", HUB, run, "{incarnation}", "{host}", "{listen}"), listens=True,
                       state="state", reads=(self.path / "corpus",))
        worker = NodeSpec("worker", (sys.executable, "-c", WORKER, run, "{incarnation}", "{epoch}", "{connect}"),
                          connects_to="hub", epoch=self.epoch, machine=worker_machine)
        self.cluster.start([hub, worker])
        self.until(lambda: self.started(0))
        return self.cluster

    def wait(self, condition):
        """Without polling it."""
        end = time.monotonic() + 30
        while not (found := condition()):
            assert time.monotonic() < end, "it never happened"
            time.sleep(0.05)
        return found

    def started(self, incarnation, node="worker"):
        return next((event for event in self.tape().of(Start, node=node) if event.inc == incarnation), None)

    def jobs(self):
        with fake_slurm.queue(self.path / "bin") as content:
            return content["jobs"]

    def folders(self):
        return list(self.path.glob("diloco-chaos.*"))


@pytest.fixture
def make_ground(tmp_path, monkeypatch):
    for name, value in fake_slurm.install(tmp_path / "bin").items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("diloco_chaos.harness.places.slurm.watch._EVERY_S", 0.1)
    made = []

    def make(**settings):
        made.append(Ground(tmp_path, **settings))
        return made[-1]
    yield make
    for ground in made:
        ground.cluster.stop()


@pytest.fixture
def ground(make_ground):
    return make_ground()


def change(path, **content):
    with fake_slurm.queue(path / "bin") as queue:
        queue.update(content)


def test_each_node_is_a_job_and_each_incarnation_a_step_of_it(ground):
    ground.start()
    jobs = ground.jobs()
    assert [job["name"] for job in jobs.values()] == [f"diloco-chaos.c0ffeec0ffee.{node}" for node in ("hub", "worker")]
    assert all("--requeue" in job["argv"] for job in jobs.values())
    assert all(TOKEN not in word for job in jobs.values() for word in job["argv"])
    assert [one["host"] for one in ground.of("spawn")] == ["job 2"]
    assert ground.started(0).sources == ground.cluster.address("worker")
    steps = list(jobs["2"]["steps"].values())
    assert int(ground.started(0).pid) in [step["pid"] for step in steps]


def test_a_kill_goes_through_slurm_and_the_next_incarnation_is_in_the_same_job(ground):
    cluster = ground.start()
    cluster.kill("worker", 0.1)
    ground.until(lambda: ground.started(1))
    assert ground.of("exit") == [{"target": "worker", "incarnation": 0, "status": -9, "killed": True}]
    assert [one["host"] for one in ground.of("spawn")] == ["job 2", "job 2"]


def test_what_is_due_while_the_controller_is_away_comes_late(ground):
    cluster = ground.start()
    change(ground.path, say="Unable to contact slurm controller (connect failure)")
    cluster.kill("worker", None)
    time.sleep(0.3)
    cluster.poll()
    assert not ground.of("exit")
    change(ground.path, say="")
    ground.until(lambda: ground.of("exit"))
    assert ground.of("exit")[0]["status"] == -9


def test_who_is_there_first_does_not_lose_its_patience_while_others_wait(ground):
    change(ground.path, hold=["worker"])
    starting = threading.Thread(target=ground.start)
    starting.start()
    ground.wait(lambda: "worker" in ground.site.hosts)
    first = ground.wait(lambda: ground.site.hosts["hub"].heard)
    ground.wait(lambda: ground.site.hosts["hub"].heard > first + 1.0)  # it is asked for the time all along
    assert not ground.started(0)
    change(ground.path, hold=False)
    starting.join(30)
    assert ground.started(0)


def test_a_job_that_slurm_has_requeued_is_not_lost_while_its_processes_go_on(ground):
    ground.start()
    host, jobs = ground.site.hosts["worker"], ground.site.jobs.watch.jobs
    jobs[2] = jobs[2]._replace(restarts=1, state="COMPLETING")
    assert ground.site.jobs.lost(host) == ""
    jobs[2] = jobs[2]._replace(state="PENDING")
    assert ground.site.jobs.lost(host) == "its job was requeued"


def test_what_slurm_did_and_could_not_say_is_not_done_again(ground, monkeypatch):
    cluster = ground.start()
    requeue = ground.site.slurm.requeue

    def and_is_away(job):
        requeue(job)
        raise SlurmAwayError("Socket timed out on send/recv operation")
    monkeypatch.setattr(ground.site.slurm, "requeue", and_is_away)
    cluster.having(Jobs).requeue("worker", 0.1)
    ground.until(lambda: ground.started(1))
    assert ground.jobs()["2"]["restarts"] == 1


def test_one_that_was_held_back_when_its_machine_was_lost_keeps_nobody_waiting(ground):
    cluster = ground.start()
    cluster.throttle("worker", 0.3)
    ground.until(lambda: cluster.states()["worker"].state == "paused")
    node = ground.site.nodes["worker"]
    node.expected_exit, node.process.host.lost = True, "its machine has lost its power"
    began = time.monotonic()
    cluster.poll()
    assert ground.of("exit")[0]["lost"]
    assert time.monotonic() - began < 5


def test_a_watch_that_ends_ends_the_run(ground):
    ground.start()
    ground.site.jobs.watch._slurm = None
    with pytest.raises(AttributeError):
        ground.until(lambda: False)


def test_who_is_terminated_is_told_so_first(ground):
    cluster = ground.start()
    cluster.terminate("worker", None)
    ground.until(lambda: ground.of("exit"))
    assert ground.of("exit")[0]["status"] == -15


def test_a_paused_step_stands_still_until_it_goes_on(ground):
    cluster = ground.start()
    cluster.pause("worker")
    assert cluster.states()["worker"].state == "paused"
    assert ground.until(cluster.residue) == ["worker is stopped"]
    cluster.resume("worker")
    ground.until(lambda: not cluster.residue())


def test_a_straggler_is_held_back_by_its_agent_and_let_go(ground):
    cluster = ground.start()
    cluster.throttle("worker", 0.3)
    ground.until(lambda: cluster.states()["worker"].state == "paused")
    assert cluster.residue() == ["worker is throttled"]
    cluster.throttle("worker", None)
    assert cluster.residue() == []
    assert cluster.states()["worker"].state == "running"


def test_a_requeued_job_starts_its_node_again_on_an_empty_disk(ground):
    cluster = ground.start()
    before = ground.folders()
    cluster.having(Jobs).requeue("worker", 0.1)
    ground.until(lambda: ground.started(1))
    assert ground.of("exit")[0]["killed"]
    assert [one["host"] for one in ground.of("spawn")] == ["job 2", "job 2, requeued 1 times"]
    assert len(ground.folders()) == len(before)  # the first one's has gone with it


def test_a_job_that_somebody_cancels_ends_the_run_with_what_slurm_says(ground):
    ground.start()
    fake_slurm.subprocess.run(["scancel", "2"], check=True)
    with pytest.raises(ClusterError, match="worker died on its own"):
        ground.until(lambda: ground.of("exit") and False)
    assert ground.of("exit")[0].get("lost", "").startswith("its job ended: CANCELLED") or (
        ground.of("exit")[0]["status"] == -15)


def test_files_of_state_and_orders_go_through_the_agent(ground):
    cluster = ground.start()
    assert cluster.state_files("hub") == {"kept": 5}  # the corpus, which it has found where its settings say
    cluster.alter("hub", "kept", lambda content: content + b"!")
    assert cluster.state_files("hub") == {"kept": 6}
    cluster.alter("hub", "kept", lambda content: None)
    assert cluster.state_files("hub") == {}


def test_a_command_finds_its_files_in_its_jobs_folder_at_each_start(ground):
    program = Program(f'{sys.executable} -c "import time; time.sleep(600)"', files={"conf/at.json": '{"of": "{name}"}'})
    ground.cluster.start([NodeSpec("worker", (), program=program)])
    file = next(ground.folders()[0].glob("**/files/worker/conf/at.json"))
    assert file.read_text() == '{"of": "worker"}'
    file.write_text("spoilt")
    ground.cluster.kill("worker", 0.1)
    ground.until(lambda: file.read_text() != "spoilt")
    assert file.read_text() == '{"of": "worker"}'


def test_links_are_beside_the_harness_and_what_is_done_to_them_is_owed(ground):
    cluster = ground.start()
    cluster.degrade("worker", [SLOW])
    assert ground.owed() == ["toxic", "slurm_jobs"]
    assert cluster.residue() == ["toxic slow on worker"]
    cluster.restore("worker", [SLOW])
    assert ground.owed() == ["slurm_jobs"]


def test_clocks_are_compared_and_machines_are_watched(ground):
    cluster = ground.start()
    ground.until(lambda: ground.of("clock"))
    assert abs(ground.of("clock")[0]["ahead"]) < 0.5
    cluster.having(Watched).machines(HERE)
    told = ground.until(lambda: cluster.having(Watched).machines(HERE))
    assert [one.machine for one in told] == ["harness"]  # jobs are on this machine, too


def test_who_is_to_lose_its_machine_shares_it_with_nobody_and_comes_back_in_another_job(make_ground):
    ground = make_ground(commands={"node_power_loss": f"{sys.executable} {fake_slurm.__file__} off {{machine}}",
                                   "node_power_return": "true"})
    cluster = ground.start("apart")
    jobs = ground.jobs()
    assert jobs["1"]["name"].endswith(".worker")  # it is placed first
    assert f"--exclude={jobs['1']['machine']}" in jobs["2"]["argv"]
    cluster.having(Machines).lose_machine("worker", 0.1)
    assert ground.owed() == ["command", "slurm_jobs"]
    ground.until(lambda: ground.started(1))
    assert ground.jobs()["1"]["state"] == "CANCELLED"  # Slurm is not to start it once more
    assert [one["host"] for one in ground.of("spawn")] == ["job 1", "job 3"]
    assert f"--exclude={jobs['1']['machine']}" in ground.jobs()["3"]["argv"]
    assert "has lost its power" in ground.of("exit")[0]["lost"]


def test_a_machine_that_does_not_come_back_keeps_no_job_from_being_cancelled(make_ground):
    ground = make_ground(commands={"node_power_loss": f"{sys.executable} {fake_slurm.__file__} off {{machine}}",
                                   "node_power_return": "false"})
    cluster = ground.start("apart")
    cluster.having(Machines).lose_machine("worker", None)
    cluster.stop()
    assert {job["state"] for job in ground.jobs().values()} <= {"CANCELLED", "COMPLETED"}
    assert ground.owed() == ["command"]
    assert ("warning", {"reason": "false: exit status 1"}) in ground.events


def test_a_job_that_waits_too_long_is_told_of_with_what_slurm_says(make_ground):
    ground = make_ground(start_within=5)
    change(ground.path, hold=True)
    with pytest.raises(ClusterError, match=r"hub: its job does not run within 5 s: PENDING \(Resources\). Raise"):
        ground.start()


def test_without_the_interpreter_it_is_told_which_one_is_missing(make_ground):
    ground = make_ground(python="/nowhere/python3")
    with pytest.raises(ClusterError, match="hub: its job ended"):
        ground.start()


def test_what_slurm_refuses_is_told(ground):
    change(ground.path, say="Batch job submission failed: Invalid partition name specified")
    with pytest.raises(ClusterError, match="Invalid partition name specified"):
        ground.start()
    change(ground.path, say="")


def test_at_the_end_nothing_is_left_of_it(ground):
    cluster = ground.start()
    pid = int(ground.started(0).pid)
    cluster.stop()
    assert {job["state"] for job in ground.jobs().values()} <= {"CANCELLED", "COMPLETED"}
    assert not fake_slurm.there(pid)
    assert ground.folders() == []
    assert ground.owed() == []


def test_where_slurm_does_not_answer_at_the_end_the_jobs_stay_owed(ground):
    cluster = ground.start()
    change(ground.path, say="Unable to contact slurm controller (connect failure)")
    cluster.stop()
    assert ground.owed() == ["slurm_jobs"]
    assert "Unable to contact" in next(fields["reason"] for event, fields in ground.events if event == "warning")
    change(ground.path, say="")


def test_a_token_is_in_no_file_and_no_command_line(ground):
    ground.start()
    assert all(TOKEN not in Path(job["script"]).read_text() for job in ground.jobs().values())
    words = [(Path(entry) / "cmdline").read_bytes() for entry in map("/proc/{}".format, os.listdir("/proc"))
             if entry.rpartition("/")[2].isdigit() and (Path(entry) / "cmdline").exists()]
    assert not any(TOKEN.encode() in line for line in words)
