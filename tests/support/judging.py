"""A scenario's text, run by the command line."""

import json
import os

from typed import typed

WITHIN_S = 300
"""For three runs of a minute each, should the first two prove nothing."""


def judged_in(folder, scenario):
    """Run it there: (exit code, check -> verdict, what was printed, on lines as long as they are)."""
    (folder / "scenario.yaml").write_text(scenario)
    done = typed("run", "scenario.yaml", "--retries-inconclusive", "2", cwd=folder, env=os.environ | {"COLUMNS": "400"},
                 timeout=WITHIN_S)
    report = json.loads(max(folder.glob("runs/*/report.json")).read_text())
    return done.returncode, {check["name"]: check["verdict"] for check in report["checks"]}, done.stdout
