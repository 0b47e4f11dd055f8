"""A scenario's text, run by the command line."""

import json
import os
import subprocess
import sys
from pathlib import Path


def judged_in(folder, scenario):
    """Run it there: (exit code, check -> verdict, what was printed, on lines as long as they are)."""
    (folder / "scenario.yaml").write_text(scenario)
    command = Path(sys.executable).with_name("diloco-chaos")
    done = subprocess.run([command, "run", "scenario.yaml", "--retries-inconclusive", "2"], cwd=folder,
                          env=os.environ | {"COLUMNS": "400"}, capture_output=True, text=True, check=False)
    report = json.loads(max(folder.glob("runs/*/report.json")).read_text())
    return done.returncode, {check["name"]: check["verdict"] for check in report["checks"]}, done.stdout
