"""In a real Slurm nothing is left of a run, whatever dies; and what only a queue does to a run is judged.

They need a Slurm that SLURM_CONF names (docker/slurm.sh makes one), with two machines, and DILOCO_CHAOS_SLURM for the
commands that take the power from one.
"""

from __future__ import annotations

import os
import signal

import pytest

import remote_runs
from diloco_chaos.harness.places.base import ClusterError
from diloco_chaos.harness.places.slurm.queue import SlurmQueue, must_be_ready
from diloco_chaos.harness.places.slurm.settings import SlurmSettings
from diloco_chaos.harness.record.tape.events import Observed, Spawn
from remote_runs import clean, until


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
        pytest.skip(f"there is no Slurm: {error}; docker/slurm.sh brings one up (docs/beyond-one-host.md)")


@pytest.fixture
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


class Begun(remote_runs.Begun):
    """Jobs write below a folder of its own."""

    entry = "slurm_jobs"

    def __init__(self, folder, settings, budget=3000, faults="", within="10s", **more):
        (folder / "jobs").mkdir()
        where = settings.model_dump(mode="json") | {"folder": str(folder / "jobs")} | more
        super().__init__(folder, "slurm", where, budget, faults, within)

    def report(self):
        told = super().report()
        assert "failed" not in told.values()
        assert told["faults_verified"] == "passed"
        return told

    def left(self):
        """Of its jobs' own folders."""
        return list((self.folder / "jobs").iterdir())


def over(label):
    return all(job.over for job in SlurmQueue().jobs(label).values())


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
    assert clean().returncode == 0


FAULTS = """{node_power_loss: learner-2, at: 3s, restart_after: 1s}, {requeue: learner-1, at: 14s, restart_after: 1s},
          {restart_control_plane: syncer, at: 28s}"""


def test_machines_and_jobs_are_taken_away_and_the_controller_is_gone_and_all_come_back_and_count_again(
        settings, state, tmp_path):
    # A requeued job waits for its credential's end (5 s on this Slurm) and the scheduler's next turns, then for torch.
    begun = Begun(tmp_path, settings, budget=600, faults=FAULTS, within="20s")
    told = begun.report()
    assert (told["self_healing"], told["reintegration"]) == ("passed", "passed")
    ran_in = {name: [event.host for event in begun.tape().of(Spawn, node="harness") if event.target == name]
              for name in ("learner-1", "learner-2")}
    assert ran_in["learner-1"][1] == f"{ran_in['learner-1'][0]}, requeued 1 times"
    assert ran_in["learner-2"][1] != ran_in["learner-2"][0]
    away = next(event.observed["away_s"] for event in begun.tape().of(Observed) if event.fault == "f3")
    assert float(away) > 2
    assert len(begun.left()) == 1  # of the machine without power, which nobody could clean
    until(lambda: len(must_be_ready()) == 2 and "idle" in must_be_ready().values(), "the machine that is back")
