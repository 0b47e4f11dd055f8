"""A node is killed; what the example's README calls passed is passed."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parents[1]
pytest.importorskip("ray.train")


@pytest.mark.parametrize("name", ["kill-node", "kill-worker"])
def test_workers_are_started_again_from_the_checkpoint(tmp_path, name):
    shutil.copytree(HERE / "scenarios", tmp_path / "scenarios")
    shutil.copy(HERE / "train.py", tmp_path)
    done = subprocess.run([Path(sys.executable).with_name("diloco-chaos"), "run", f"scenarios/{name}.yaml",
                           "--retries-inconclusive", "2"], cwd=tmp_path, capture_output=True, text=True, check=False)
    report = max(tmp_path.glob("runs/*/report.json"), default=None)
    assert report, done.stdout + done.stderr
    found = {check["name"]: check["verdict"] for check in json.loads(report.read_text())["checks"]}
    assert (done.returncode, set(found.values())) == (0, {"passed"}), found
