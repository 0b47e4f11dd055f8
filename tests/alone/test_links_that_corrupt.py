"""Two that exchange values over a link that turns over bits, with and without a look at what came."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

JOB = Path(__file__).parents[1] / "support/exchanging_job.py"
SCENARIO = """
diloco_chaos: 1
name: garbled
trainer:
  kind: commands
  nodes:
    a: {{worker: true, listens: true, ready: {{port: true}}, run: "{{python}} {job} serve {{port}} {bug}"}}
    b: {{worker: true, run: "{{python}} {job} ask {{a.port}} {bug}"}}
  progress:
    - {{node: [a, b], log: '^step=(?P<round>\\d+) loss=(?P<loss>\\S+)'}}
  rounds: 60
deadline: 60s
faults:
  - {{corrupt_link: b.a, at: 2s, for: 2s, direction: downstream, every: 2kB}}
checks:
  members_agree: {{}}
  no_global_stall: {{max_gap: 10s}}
"""


@pytest.fixture
def verdicts(tmp_path):
    """Of the job with a bug: (exit code, check -> verdict, what was said)."""
    def run(bug=""):
        (tmp_path / "garbled.yaml").write_text(SCENARIO.format(job=JOB, bug=bug))
        done = subprocess.run([Path(sys.executable).with_name("diloco-chaos"), "run", "garbled.yaml"], cwd=tmp_path,
                              capture_output=True, text=True, check=False)
        report = json.loads(max(tmp_path.glob("runs/*/report.json")).read_text())
        return done.returncode, {check["name"]: check["verdict"] for check in report["checks"]}, done.stdout
    return run


def test_who_checks_what_came_asks_again_and_passes(verdicts):
    code, found, said = verdicts()
    assert (code, set(found.values())) == (0, {"passed"}), said
    assert "turned over" in said


def test_who_trusts_what_came_is_found(verdicts):
    code, found, said = verdicts("trusts")
    assert (code, found["members_agree"]) == (1, "failed"), said
