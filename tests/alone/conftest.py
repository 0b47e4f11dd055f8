"""Tests that need the machine for themselves: `make test` runs them one after the other, after all others."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def engine_there():
    """Without an engine and its images these tests are skipped; with DILOCO_CHAOS_REQUIRE_ENGINE set they fail."""
    from diloco_chaos.harness.places.base import ClusterError
    from diloco_chaos.harness.places.compose.readiness import must_be_ready
    try:
        must_be_ready()
    except ClusterError as error:
        refuse(str(error))


def refuse(reason):
    if os.environ.get("DILOCO_CHAOS_REQUIRE_ENGINE"):
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


@pytest.fixture(params=[["docker", "compose"], ["docker-compose"]], ids=["compose-2", "compose-1"])
def compose(request, engine_there):
    """The command line of Compose, both generations."""
    command = request.param
    if shutil.which(command[0]) is None or subprocess.run([*command, "version"], capture_output=True).returncode:
        refuse(f"{' '.join(command)} is not installed")
    return command


@pytest.fixture
def judged(tmp_path):
    """Run a scenario's text: (exit code, check -> verdict, what was printed)."""
    def run(scenario):
        (tmp_path / "scenario.yaml").write_text(scenario)
        done = subprocess.run([Path(sys.executable).with_name("diloco-chaos"), "run", "scenario.yaml"], cwd=tmp_path,
                              capture_output=True, text=True, check=False)
        report = json.loads(max(tmp_path.glob("runs/*/report.json")).read_text())
        return done.returncode, {check["name"]: check["verdict"] for check in report["checks"]}, done.stdout
    return run


_SAVING = """
diloco_chaos: 1
name: saving
trainer:
  kind: commands
  nodes:
    job:
      worker: true
      run: "{{python}} {job} {{run}}/state/{{name}} {bug}"
      state: "{{run}}/state/{{name}}"
      restart: on-failure
      restart_delay: 300ms
  progress:
    - {{node: job, log: '^step=(?P<round>\\d+) loss=(?P<loss>\\S+)'}}
  rounds: 100
deadline: 20s
"""


@pytest.fixture
def saving(judged):
    """Run the job that saves its state every ten rounds, with a bug in that, and with these faults and checks."""
    job = Path(__file__).parents[1] / "support/saving_job.py"
    return lambda rest, bug="": judged(_SAVING.format(job=job, bug=bug) + rest)
