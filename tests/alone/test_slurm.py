"""In a real Slurm nothing is left of a run, whatever dies; and what only a queue does to a run is judged.

They need a Slurm that SLURM_CONF names (docker/slurm.sh makes one), with two machines, and DILOCO_CHAOS_SLURM for the
commands that take the power from one.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harness.cleanup.undo_log import undo_logs_folder
from harness.cluster.base import ClusterError
from harness.cluster.slurm.queue import Slurm, must_be_ready
from harness.cluster.slurm.settings import SlurmSettings
from harness.tape import reading

SCENARIO = """
diloco_chaos: 1
name: small
deadline: 150s
cluster: {{model: micro, corpus: markov, fragments: 4, batch: 4, learners: 2, budget: {budget}, step_time: 80ms}}
faults: [{faults}]
checks: {{goodput: {{at_least: 50%}}, blast_radius: {{at_least: 50%}}}}
"""
WITHIN_S = 90.0
COMMAND = str(Path(sys.executable).with_name("diloco-chaos"))


@pytest.fixture(scope="session")
def settings():
    """Of the Slurm."""
    try:
        if not os.environ.get("SLURM_CONF"):
            raise ClusterError("SLURM_CONF names none")
        must_be_ready()
        return SlurmSettings.given()
    except ClusterError as error:
        if os.environ.get("DILOCO_CHAOS_REQUIRE_SLURM"):
            pytest.fail(f"there is no Slurm: {error}", pytrace=False)
        pytest.skip(f"there is no Slurm: {error}")


@pytest.fixture
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def until(condition, what, within=WITHIN_S):
    end = time.monotonic() + within
    while not (found := condition()):
        assert time.monotonic() < end, f"{what}: not within {within:g} s"
        time.sleep(0.2)
    return found


class Begun:
    """A run of its own process, whose jobs write below a folder of its own."""

    def __init__(self, folder, settings, budget=3000, faults="", **more):
        (folder / "jobs").mkdir()
        (folder / "small.yaml").write_text(SCENARIO.format(budget=budget, faults=faults))
        place = folder / "place.yaml"
        place.write_text(json.dumps(settings.model_dump(mode="json") | {"folder": str(folder / "jobs")} | more))
        self.folder, self.runs, self.undo = folder, folder / "runs", undo_logs_folder()
        self.process = subprocess.Popen(
            [COMMAND, "run", str(folder / "small.yaml"), "--on", "slurm", "--place", str(place), "--runs-dir",
             str(self.runs), "--json", "--step-time", "auto"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def tape(self):
        return reading.read(next(iter(self.runs.glob("*/tape")), self.runs))

    def trains(self):
        """Wait until it is in the middle; its label."""
        until(lambda: self.process.poll() is not None or self.tape().of("merge"), "a merge")
        assert self.process.poll() is None, self.process.communicate()
        logs = self.undo.glob(f"*-{self.process.pid}-*.jsonl")
        found = [json.loads(line) for log in logs for line in log.read_text().splitlines()]
        return next(entry["run"] for entry in found if entry["entry"] == "slurm_jobs")

    def reaper(self):
        wanted = f"harness.reaper .*-{self.process.pid}-"
        found = subprocess.run(["pgrep", "-f", wanted], capture_output=True, text=True)
        return int(found.stdout.split()[0])

    def report(self):
        told, said = self.process.communicate(timeout=240)
        assert self.process.returncode in (0, 3), said  # a machine that others keep busy proves nothing, and is told
        report = json.loads(told)
        assert not [check for check in report["checks"] if check["verdict"] == "failed"]
        told = {check["name"]: check["verdict"] for check in report["checks"]}
        assert told["faults_verified"] == "passed"
        return told

    def left(self):
        """Of its jobs' own folders."""
        return list((self.folder / "jobs").iterdir())


def over(label):
    return all(job.over for job in Slurm().jobs(label).values())


def test_a_harness_that_is_killed_leaves_nothing(settings, state, tmp_path):
    begun = Begun(tmp_path, settings)
    label = begun.trains()
    begun.process.kill()
    until(lambda: over(label), "the end of its jobs")
    until(lambda: not list(begun.undo.glob("*.jsonl")), "the end of its undo log")
    until(lambda: not begun.left(), "the end of what they wrote")


def test_where_its_reaper_is_killed_too_jobs_end_by_themselves(settings, state, tmp_path):
    begun = Begun(tmp_path, settings, patience=30)
    label = begun.trains()
    os.kill(begun.reaper(), signal.SIGKILL)
    begun.process.kill()
    until(lambda: over(label), "the end of its jobs")
    until(lambda: not begun.left(), "the end of what they wrote")
    assert subprocess.run([COMMAND, "clean"], capture_output=True, text=True).returncode == 0


def test_a_learner_whose_job_is_requeued_comes_back_and_counts_again(settings, state, tmp_path):
    begun = Begun(tmp_path, settings, budget=350, faults="{requeue: learner-1, at: 3s, restart_after: 1s}")
    told = begun.report()
    assert (told["self_healing"], told["reintegration"]) == ("passed", "passed")
    spawned = [event["host"] for event in begun.tape().of("spawn", node="harness") if event["target"] == "learner-1"]
    assert spawned[1] == f"{spawned[0]}, requeued 1 times"
    assert not begun.left()


def test_while_the_controller_is_away_training_goes_on(settings, state, tmp_path):
    begun = Begun(tmp_path, settings, budget=350, faults="{restart_control_plane: syncer, at: 3s}")
    assert begun.report()["self_healing"] == "passed"
    away = next(event["observed"]["away_s"] for event in begun.tape().of("observed") if event["fault"] == "f1")
    assert float(away) > 1
    assert not begun.left()
