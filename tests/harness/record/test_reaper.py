"""The reaper: it undoes what a dead harness owed, ends what carries the run's token, and touches nothing else."""

import os
import resource
import secrets
import signal
import subprocess
import sys
import time

import pytest

import fake_slurm
from diloco_chaos.harness.base.processes import Identity, identity, state, with_token
from diloco_chaos.harness.links.client import Links
from diloco_chaos.harness.links.toxic import Toxic
from diloco_chaos.harness.places.kubernetes.undos import Namespace
from diloco_chaos.harness.places.links.undos import Enable, Toxin
from diloco_chaos.harness.places.slurm.undos import SlurmJobs
from diloco_chaos.harness.record.reaper import heal as healed
from diloco_chaos.harness.record.undo_log import UndoLog, UndoLogError
from diloco_chaos.harness.record.undos import Command, Continue, Lift, Remove

OURS, THEIRS = secrets.token_hex(16), secrets.token_hex(16)


def heal(path):
    """What it does, as people read it."""
    return list(map(str, healed(path)))


@pytest.fixture
def undo_log(tmp_path):
    return UndoLog(tmp_path / "undo_log.jsonl", OURS)


def until(condition, seconds=5.0):
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.005)
    return condition()


def stopped(process):
    process.send_signal(signal.SIGSTOP)
    assert until(lambda: state(process.pid) == "T")
    return identity(process.pid)


def left_alone(process):
    return process.poll() is None and state(process.pid) == "T"


# -- processes -----------------------------------------------------------------------------------------------------


def test_every_process_with_the_token_is_ended_and_the_undo_log_goes(undo_log, start):
    ours, theirs, nobodys = start(token=OURS), start(token=THEIRS), start()
    stopped(ours)
    did = heal(undo_log.path)
    assert did == [f"1 processes ended: {ours.pid}"]
    assert ours.wait(5) == -signal.SIGKILL
    assert theirs.poll() is None
    assert nobodys.poll() is None
    assert not undo_log.path.exists()


def test_a_stopped_process_runs_again_before_it_is_ended(undo_log, start):
    ours = start(token=OURS)
    undo_log.record(Continue, process=stopped(ours))
    assert heal(undo_log.path)[0] == f"process {ours.pid} let run again"
    assert with_token(OURS) == []


def test_a_pid_that_somebody_else_has_now_is_not_touched(undo_log, start):
    theirs = start()
    who = stopped(theirs)
    before = Identity(who.pid, who.start - 1)
    undo_log.record(Continue, process=before)
    undo_log.record(Lift, process=before, soft=100, hard=100)
    limits = resource.prlimit(theirs.pid, resource.RLIMIT_FSIZE)
    assert heal(undo_log.path) == []
    assert left_alone(theirs)
    assert resource.prlimit(theirs.pid, resource.RLIMIT_FSIZE) == limits


@pytest.mark.parametrize("token", [None, THEIRS], ids=["none", "theirs"])
def test_a_process_without_the_token_is_not_touched_even_where_the_undo_log_names_it(undo_log, start, token):
    theirs = start(token=token)
    who = stopped(theirs)
    undo_log.record(Continue, process=who)
    undo_log.record(Lift, process=who, soft=100, hard=100)
    limits = resource.prlimit(theirs.pid, resource.RLIMIT_FSIZE)
    assert heal(undo_log.path) == []
    assert left_alone(theirs)
    assert resource.prlimit(theirs.pid, resource.RLIMIT_FSIZE) == limits


def test_a_limit_of_file_sizes_is_lifted(undo_log, start):
    ours = start(token=OURS)
    soft, hard = resource.prlimit(ours.pid, resource.RLIMIT_FSIZE)
    undo_log.record(Lift, process=identity(ours.pid), soft=soft, hard=hard)
    resource.prlimit(ours.pid, resource.RLIMIT_FSIZE, (1000, hard))
    assert heal(undo_log.path)[0] == f"file size limit of process {ours.pid} lifted"


def test_healing_twice_is_harmless(undo_log, start, tmp_path):
    ours = start(token=OURS)
    undo_log.record(Continue, process=stopped(ours))
    undo_log.record(Remove, path=folder_of(tmp_path, OURS))
    copy = undo_log.path.read_bytes()
    assert len(heal(undo_log.path)) == 3
    undo_log.path.write_bytes(copy)
    assert heal(undo_log.path) == []
    assert not undo_log.path.exists()


def test_what_was_done_by_the_harness_itself_is_not_done_again(undo_log, start, tmp_path):
    folder = folder_of(tmp_path, OURS)
    undo_log.complete(undo_log.record(Remove, path=folder))
    assert heal(undo_log.path) == []
    assert folder.exists()


def test_a_undo_log_that_says_nothing_yet_is_removed(tmp_path):
    path = tmp_path / "undo_log.jsonl"
    path.write_text('{"entry": "ope')
    assert heal(path) == []
    assert not path.exists()


def test_what_is_not_a_undo_log_is_told_and_stays(tmp_path, start):
    ours = start(token=OURS)
    path = tmp_path / "notes.jsonl"
    path.write_text("dear diary\n")
    with pytest.raises(UndoLogError):
        heal(path)
    assert path.exists()
    assert ours.poll() is None


# -- folders of temporary files ------------------------------------------------------------------------------------


def folder_of(tmp_path, owner):
    folder = tmp_path / f"folder.{owner}.work"
    (folder / "tape").mkdir(parents=True)
    (folder / "tape" / "syncer.0.jsonl").write_text("{}\n")
    return folder


def test_a_folder_that_is_ours_is_removed(undo_log, tmp_path):
    folder = folder_of(tmp_path, OURS)
    undo_log.record(Remove, path=folder)
    assert heal(undo_log.path) == [f"{folder} removed"]
    assert not folder.exists()


@pytest.mark.parametrize("owner", ["", THEIRS, OURS[:-1], OURS.upper()], ids=["none", "theirs", "cut", "upper case"])
def test_a_folder_without_our_token_in_its_name_is_not_removed(undo_log, tmp_path, owner):
    folder = folder_of(tmp_path, owner)
    undo_log.record(Remove, path=folder)
    assert heal(undo_log.path) == []
    assert (folder / "tape" / "syncer.0.jsonl").exists()
    assert not undo_log.path.exists()


def test_what_a_link_in_our_folder_leads_to_stays(undo_log, tmp_path):
    folder = folder_of(tmp_path, OURS)
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").write_text("precious")
    (folder / "link").symlink_to(tmp_path / "precious")
    undo_log.record(Remove, path=folder)
    heal(undo_log.path)
    assert not folder.exists()
    assert (tmp_path / "precious" / "file").exists()


WRITER = """
import itertools, pathlib, sys
folder = pathlib.Path(sys.argv[1])
for number in itertools.count():
    try:
        (folder / f"{number}").write_text("still here")
    except OSError:
        pass
"""


def test_a_folder_goes_even_while_a_process_of_ours_still_writes_into_it(undo_log, start, tmp_path):
    folder = folder_of(tmp_path, OURS)
    undo_log.record(Remove, path=folder)
    start(sys.executable, "-c", WRITER, str(folder / "tape"), token=OURS)
    assert until(lambda: len(os.listdir(folder / "tape")) > 500)
    did = heal(undo_log.path)
    assert not folder.exists(), did
    assert not undo_log.path.exists()


def test_what_can_not_be_undone_is_told_and_stays_on_the_undo_log_until_it_can(undo_log, tmp_path, monkeypatch):
    folder = folder_of(tmp_path, OURS)
    undo_log.record(Remove, path=folder)

    def busy(path):
        raise OSError(16, "Device or resource busy")
    with monkeypatch.context() as patch:
        patch.setattr("shutil.rmtree", busy)
        assert heal(undo_log.path)[0].startswith(f"NOT UNDONE: {folder} removed: ")
    assert undo_log.path.exists()
    assert heal(undo_log.path) == [f"{folder} removed"]
    assert not undo_log.path.exists()


# -- links ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def served(tmp_path, start):
    """served(token) -> a running link server with a link that is cut and has a toxic, its API and its identity."""
    def serve(token=None):
        address = tmp_path / f"address-{token}"
        process = start(sys.executable, "-m", "diloco_chaos.harness.links.server", "--port", "0",
                        "--address-file", str(address), token=token)
        assert until(address.exists, 15)
        api = address.read_text()
        Links(api).create("learner-1", "127.0.0.1:9")
        Links(api).add("learner-1", Toxic("latency", "upstream", {"latency": 10}, name="f1-latency-upstream"))
        Links(api).set_enabled("learner-1", False)
        return api, identity(process.pid)
    return serve


def owe_both(undo_log, api, server):
    undo_log.record(Toxin, api=api, server=server, link="learner-1", name="f1-latency-upstream")
    undo_log.record(Enable, api=api, server=server, link="learner-1")


def is_hurt(api):
    return not Links(api).enabled("learner-1") and len(Links(api).toxics("learner-1")) == 1


def test_a_link_of_a_server_that_is_not_ours_to_end_is_healed(undo_log, served):
    api, _ = served()
    owe_both(undo_log, api, None)
    assert heal(undo_log.path) == ["link learner-1 let through again",
                                   "toxic f1-latency-upstream taken off learner-1"]
    assert Links(api).enabled("learner-1")
    assert Links(api).toxics("learner-1") == []


def test_the_links_of_our_own_server_are_healed_before_it_is_ended(undo_log, served):
    api, server = served(OURS)
    owe_both(undo_log, api, server)
    assert heal(undo_log.path) == ["link learner-1 let through again",
                                   "toxic f1-latency-upstream taken off learner-1", f"1 processes ended: {server.pid}"]


def test_a_port_that_another_process_took_over_is_not_touched(undo_log, served):
    """Their server listens where ours did, and even calls its link as ours was called."""
    api, server = served()
    owe_both(undo_log, api, Identity(server.pid, server.start - 1))
    assert heal(undo_log.path) == []
    assert is_hurt(api)


@pytest.mark.parametrize("token", [None, THEIRS], ids=["none", "theirs"])
def test_a_server_without_the_token_is_not_touched(undo_log, served, token):
    api, server = served(token)
    owe_both(undo_log, api, server)
    assert heal(undo_log.path) == []
    assert is_hurt(api)


def test_a_server_that_is_gone_or_never_knew_the_link_owes_nothing(undo_log, served):
    api, _ = served()
    undo_log.record(Toxin, api="127.0.0.1:9", link="learner-1", name="toxic")
    undo_log.record(Enable, api=api, link="learner-9")
    assert heal(undo_log.path) == []
    assert not undo_log.path.exists()


# -- the process ---------------------------------------------------------------------------------------------------


def reaper(start, path):
    process = start(sys.executable, "-m", "diloco_chaos.harness.record.reaper", str(path))
    assert until(lambda: process.poll() is not None or waits_for_a_lock(process.pid))
    return process


def waits_for_a_lock(pid):
    with open("/proc/locks") as locks:
        return any("->" in line and f" {pid} " in line for line in locks)


def test_a_reaper_waits_as_long_as_the_harness_lives_and_undoes_once_it_is_dead(undo_log, start, tmp_path):
    ours, folder = start(token=OURS), folder_of(tmp_path, OURS)
    undo_log.record(Remove, path=folder)
    undo_log.record(Continue, process=stopped(ours))
    waiting = reaper(start, undo_log.path)
    assert waiting.poll() is None
    assert left_alone(ours)
    undo_log.close()  # as the kernel does with the lock of a process that died
    assert waiting.wait(5) == 0
    assert ours.wait(5) == -signal.SIGKILL
    assert not folder.exists()
    assert not undo_log.path.exists()


def test_a_reaper_does_nothing_once_the_undo_log_is_gone(undo_log, start):
    ours = start(token=OURS)
    waiting = reaper(start, undo_log.path)
    undo_log.close()  # nothing is owed: it goes
    assert waiting.wait(5) == 0
    assert ours.poll() is None
    assert reaper(start, undo_log.path).wait(5) == 0


def test_two_reapers_of_one_undo_log_do_not_get_into_each_others_way(undo_log, start):
    ours = start(token=OURS)
    undo_log.record(Continue, process=stopped(ours))
    both = [reaper(start, undo_log.path), reaper(start, undo_log.path)]
    undo_log.close()
    assert [one.wait(5) for one in both] == [0, 0]
    assert ours.wait(5) == -signal.SIGKILL
    assert not undo_log.path.exists()


def test_a_waiting_reaper_has_not_loaded_what_it_needs_only_for_healing(undo_log, start):
    waiting = reaper(start, undo_log.path)
    with open(f"/proc/{waiting.pid}/maps") as maps:
        assert "pydantic" not in maps.read()
    undo_log.close()
    waiting.wait(5)


# -- machines and clusters of others -----------------------------------------------------------------------------------

def test_what_only_the_user_can_undo_is_undone_by_the_user_s_command(undo_log, tmp_path):
    undo_log.record(Command, argv=["touch", str(tmp_path / "back")])
    assert heal(undo_log.path) == [f"touch {tmp_path / 'back'}: done"]
    assert (tmp_path / "back").exists()
    assert not undo_log.path.exists()


@pytest.mark.parametrize(("argv", "why"), [
    (["sh", "-c", "echo no such machine >&2; exit 3"], "exit status 3: no such machine"),
    (["no-such-program-here"], "No such file or directory")])
def test_a_command_that_fails_is_told_and_stays_owed(undo_log, argv, why):
    undo_log.record(Command, argv=argv)
    told, = heal(undo_log.path)
    assert told.startswith("NOT UNDONE: ")
    assert why in told
    assert undo_log.path.exists()


class Kubernetes:
    """An API, as far as the reaper asks it."""

    def __init__(self, left=(), refuses=""):
        self.left, self.refuses, self.asked = list(left), refuses, []

    def __call__(self, context):
        self.asked.append(context)
        return self

    def remove(self, namespace, run):
        self.asked.append((namespace, run))
        if self.refuses:
            from diloco_chaos.harness.places.kubernetes.api import KubernetesError
            raise KubernetesError(self.refuses)
        return True

    def wait_removed(self, namespace, run, seconds):
        return self.left

    def close(self):
        self.asked.append("closed")


@pytest.mark.parametrize(("api", "told"), [
    (Kubernetes(), "everything of c0ffeec0ffee in namespace n of lab removed"),
    (Kubernetes(left=["namespace n, which is being terminated"]), "still there: namespace n, which is being termin"),
    (Kubernetes(refuses="the API server does not answer"), "the API server does not answer")])
def test_what_a_run_left_on_a_kubernetes_is_removed_or_told_of(undo_log, monkeypatch, api, told):
    monkeypatch.setattr("diloco_chaos.harness.places.kubernetes.api.KubernetesApi", api)
    undo_log.record(Namespace, context="lab", namespace="n", run="c0ffee" * 2)
    found, = heal(undo_log.path)
    assert told in found
    assert found.startswith("NOT UNDONE: ") is undo_log.path.exists()
    assert api.asked == ["lab", ("n", "c0ffee" * 2), "closed"]


@pytest.fixture
def queue(tmp_path, monkeypatch):
    """Of a Slurm that is made up, with a job of this run and one of somebody else's."""
    for name, value in fake_slurm.install(tmp_path / "bin").items():
        monkeypatch.setenv(name, value)
    for name in (f"diloco-chaos.{'c0ffee' * 2}.learner-1", f"diloco-chaos.{'decafe' * 2}.learner-1"):
        subprocess.run(["sbatch", f"--job-name={name}"], input="sleep 600", text=True, check=True)
    yield tmp_path / "bin"
    with fake_slurm.queue(tmp_path / "bin") as content:
        for job in content["jobs"].values():
            fake_slurm.end(job)


def test_jobs_that_a_run_left_are_cancelled_and_nobody_else_s(undo_log, queue):
    undo_log.record(SlurmJobs, config="", run="c0ffee" * 2)
    assert heal(undo_log.path) == ["jobs of c0ffeec0ffee cancelled"]
    with fake_slurm.queue(queue) as content:
        assert [job["state"] for job in content["jobs"].values()] == ["CANCELLED", "RUNNING"]
    assert not undo_log.path.exists()


def test_where_slurm_does_not_answer_jobs_stay_owed(undo_log, queue):
    with fake_slurm.queue(queue) as content:
        content["say"] = "Unable to contact slurm controller"
    undo_log.record(SlurmJobs, config="", run="c0ffee" * 2)
    found, = heal(undo_log.path)
    assert found.startswith("NOT UNDONE: jobs of c0ffeec0ffee cancelled: squeue: Unable to contact")
    assert undo_log.path.exists()
    with fake_slurm.queue(queue) as content:
        content["say"] = ""
