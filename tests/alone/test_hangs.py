"""A job with a watchdog whose main thread stands for a while, with and without a bug in who feeds the watchdog."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

JOB = Path(__file__).parents[1] / "support/watched_job.py"
SCENARIO = """
diloco_chaos: 1
name: watched
trainer:
  kind: commands
  nodes:
    job:
      worker: true
      run: "{{python}} {job} {{run}}/{{name}}.json {bug}"
      restart: on-failure
      restart_delay: 200ms
  progress:
    - {{node: job, log: '^step=(?P<round>\\d+) loss=(?P<loss>\\S+)'}}
  rounds: 200
deadline: 30s
faults:
  - {{hang: job, holding: nothing, when: {{node: job, event: step, count: 25}}, for: 6s}}
checks:
  profile: resumable
  no_global_stall: {{max_gap: 3s}}
"""


@pytest.fixture
def verdicts(tmp_path):
    """Of the job with a bug: (exit code, check -> verdict)."""
    def run(bug=""):
        (tmp_path / "watched.yaml").write_text(SCENARIO.format(job=JOB, bug=bug))
        done = subprocess.run([Path(sys.executable).with_name("diloco-chaos"), "run", "watched.yaml"], cwd=tmp_path,
                              capture_output=True, check=False)
        report = json.loads(max(tmp_path.glob("runs/*/report.json")).read_text())
        return done.returncode, {check["name"]: check["verdict"] for check in report["checks"]}
    return run


def test_a_watchdog_that_ends_a_job_whose_main_thread_hangs_passes(verdicts):
    code, found = verdicts()
    assert (code, found["restarts"], set(found.values())) == (0, "passed", {"passed"}), found


def test_a_watchdog_that_another_thread_feeds_is_found(verdicts):
    code, found = verdicts("wrong-thread")
    assert (code, found["no_global_stall"]) == (1, "failed"), found
