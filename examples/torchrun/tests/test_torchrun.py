"""A worker of an agent is killed; what the example's README calls passed is passed."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parents[1]
pytest.importorskip("torch")


def test_a_worker_that_is_killed_is_started_again_and_where_they_do_not_meet_that_is_told(tmp_path):
    shutil.copytree(HERE / "scenarios", tmp_path / "scenarios")
    shutil.copy(HERE / "train.py", tmp_path)
    done = subprocess.run([Path(sys.executable).with_name("diloco-chaos"), "run", "scenarios/kill-worker.yaml",
                           "--retries-inconclusive", "2"], cwd=tmp_path, capture_output=True, text=True, check=False)
    report = max(tmp_path.glob("runs/*/report.json"), default=None)
    assert report, done.stdout + done.stderr
    found = {check["name"]: check["verdict"] for check in json.loads(report.read_text())["checks"]}
    one, two = ((report.parent / "logs" / f"agent-{number}.0.log").read_text() for number in (1, 2))
    assert "failed (exitcode: -9) local_rank: 1" in two
    if found["no_global_stall"] == "failed":  # on a slow machine, says docs/found.md
        assert done.returncode == 1
        assert "Connection refused" in one + two
    else:
        assert (done.returncode, set(found.values())) == (0, {"passed"}), found
