"""What Slurm's commands say, and what becomes of what goes wrong with them."""

from __future__ import annotations

import pytest

from diloco_chaos.harness.places.remote.hosts import AwayError
from diloco_chaos.harness.places.slurm.queue import Job, SlurmError, SlurmQueue, job_name


@pytest.fixture
def says(tmp_path, monkeypatch):
    """Have a command say something."""
    def make(name, stdout="", stderr="", status=0):
        path = tmp_path / name
        path.write_text(f"#!/bin/sh\ncat <<'END'\n{stdout}\nEND\ncat >&2 <<'END'\n{stderr}\nEND\nexit {status}\n")
        path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return make


def test_of_all_jobs_those_of_the_run_are_known(says):
    says("squeue", "7|diloco-chaos.abc.hub|RUNNING|0|n1|0|None|\n8|diloco-chaos.abc.learner-1|PENDING|2||0|BeginTime|\n"
                   "9|diloco-chaos.abcd.learner-1|RUNNING|0|n1|0|None|\n10|somebody|RUNNING|0|n1|0|None|\n\nrubbish")
    assert SlurmQueue().jobs("abc") == {
        7: Job(7, "diloco-chaos.abc.hub", "RUNNING", 0, "n1", "0", "None"),
        8: Job(8, "diloco-chaos.abc.learner-1", "PENDING", 2, "", "0", "BeginTime")}


@pytest.mark.parametrize(("state", "over"), [
    ("RUNNING", False), ("PENDING", False), ("COMPLETING", False), ("SUSPENDED", False), ("COMPLETED", True),
    ("REQUEUE_FED", False), ("CANCELLED", True),
    ("CANCELLED by 0", True), ("FAILED", True), ("TIMEOUT", True), ("NODE_FAIL", True), ("PREEMPTED", True)])
def test_some_states_are_the_end(state, over):
    assert Job(1, job_name("abc", "hub"), state, 0, "n1", "0", "").over is over


@pytest.mark.parametrize("why", ["Unable to contact slurm controller (connect failure)", "Connection refused",
                                 "Socket timed out on send/recv operation"])
def test_a_controller_that_does_not_answer_is_away(says, why):
    says("squeue", stderr=f"slurm_load_jobs error: {why}", status=1)
    with pytest.raises(AwayError, match="squeue: slurm_load_jobs error"):
        SlurmQueue().jobs("abc")


def test_what_a_command_refuses_is_told_once(says):
    says("sbatch", stderr="sbatch: error: invalid partition\nsbatch: error: invalid partition\n", status=1)
    with pytest.raises(SlurmError, match=r"^sbatch: invalid partition$"):
        SlurmQueue().submit("a", "", [], {})


def test_where_there_are_commands_and_no_slurm_it_is_told_what_to_set(says):
    says("squeue", stderr="squeue: error: fetch_config: DNS SRV lookup failed\nsqueue: fatal: Could not establish a "
                          "configuration source", status=1)
    with pytest.raises(SlurmError, match=r"Could not establish a configuration source. Set SLURM_CONF to your Slurm's"):
        SlurmQueue().jobs("abc")


def test_a_number_comes_without_the_cluster_s_name(says):
    says("sbatch", "12;lab")
    assert SlurmQueue().submit("a", "", [], {}) == 12


def test_who_is_gone_already_is_signalled_and_cancelled_by_nobody(says):
    says("scancel", stderr="scancel: error: Kill job error on job id 7: Job/step already completing or completed",
         status=1)
    SlurmQueue().cancel([7])
    SlurmQueue().cancel([])


def test_a_machine_without_an_address_is_told(says):
    says("scontrol", "NodeName=n1 State=IDLE")
    with pytest.raises(SlurmError, match="does not say where n1 is"):
        SlurmQueue().address("n1")
    says("scontrol", "NodeName=n1 NodeAddr=10.0.0.1 NodeHostName=n1")
    assert SlurmQueue().address("n1") == "10.0.0.1"


def test_which_slurm_is_asked_is_what_was_written_down(monkeypatch):
    monkeypatch.setenv("SLURM_CONF", "/mine")
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    assert SlurmQueue()._env["SLURM_CONF"] == "/mine"
    assert SlurmQueue("/theirs")._env["SLURM_CONF"] == "/theirs"
    assert "SLURM_CONF" not in SlurmQueue("")._env
    assert "SLURM_JOB_ID" not in SlurmQueue()._env  # the harness' own job is none of the run's


@pytest.mark.parametrize(("said", "there"), [("Slurmctld(primary) at lab is UP", True),
                                             ("Slurmctld(primary) at lab is DOWN", False)])
def test_a_controller_that_is_down_does_not_answer(says, said, there):
    says("scontrol", said)
    assert SlurmQueue().answers() is there
