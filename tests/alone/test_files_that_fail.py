"""A job whose disk is full for a while, and that is killed afterwards, with and without bugs in how it saves."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

JOB = Path(__file__).parents[1] / "support/saving_job.py"
SCENARIO = """
diloco_chaos: 1
name: full
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
faults:
  - io: job
    path: "{{run}}/state/*"
    error: ENOSPC
    after_bytes: 5kB
    when: {{node: job, event: step, count: 25}}
    for: 2s
  - {{kill: job, after: {{fault: f1, wait: 200ms}}, restart_after: 300ms}}
checks:
  profile: resumable
  no_global_stall: {{max_gap: {gap}}}
"""


@pytest.fixture
def verdicts(tmp_path):
    """Of the job with a bug: (exit code, check -> verdict, what was observed of the full disk)."""
    def run(bug="", gap="10s"):
        (tmp_path / "full.yaml").write_text(SCENARIO.format(job=JOB, bug=bug, gap=gap))
        done = subprocess.run([Path(sys.executable).with_name("diloco-chaos"), "run", "full.yaml"], cwd=tmp_path,
                              capture_output=True, text=True, check=False)
        report = json.loads(max(tmp_path.glob("runs/*/report.json")).read_text())
        return done.returncode, {check["name"]: check["verdict"] for check in report["checks"]}, done.stdout
    return run


def test_who_ends_rather_than_go_on_without_its_state_passes(verdicts):
    code, found, said = verdicts()
    assert (code, set(found.values())) == (0, {"passed"}), found
    assert "ENOSPC for" in said


@pytest.mark.parametrize(("bug", "gap", "check"), [
    ("swallows", "10s", "no_unplanned_exit"), ("retries", "1s", "no_global_stall")])
def test_a_bug_in_how_it_saves_is_found(verdicts, bug, gap, check):
    code, found, _ = verdicts(bug, gap)
    assert (code, found[check]) == (1, "failed"), found
