"""Eleven bugs that people make when they resume a job, planted in an example one at a time.

    python bed.py EXAMPLE [BUG...]      prints which check finds which; without BUG all, and the example as it is

An example's `tests/planted.py BUG ARGUMENTS...` is its `train.py` with that bug.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from ruamel.yaml import YAML

BUGS = {
    "data order not resumed": "rounds_repeat",
    "a batch trained twice": "rounds_repeat",
    "optimizer not restored": "rounds_repeat",
    "scheduler not restored": "rounds_repeat",
    "warm-up again": "rounds_repeat",
    "random state not restored": "rounds_repeat",
    "seeded anew at each start": "rounds_repeat",
    "weights of an older checkpoint": "rounds_repeat",
    "gradient accumulation lost": "rounds_repeat",
    "step off by one": "rounds_repeat",
    "NaN after the restart": "losses_are_numbers",
}
"""Bug -> the check that is named for it."""


def verdicts(example: Path, folder: Path, bug: str = "", scenario: str = "kill") -> tuple[int, dict[str, str]]:
    """Run a scenario of an example with a bug in it, or with none: the exit code, and check -> verdict."""
    base = YAML(typ="safe").load(example / "scenarios/base.yaml")
    (node, settings), = base["trainer"]["nodes"].items()
    run = settings["run"].replace("train.py", f"tests/planted.py {bug!r}" if bug else "train.py")
    planted = folder / "planted.yaml"
    planted.write_text(json.dumps({
        "diloco_chaos": 1, "extends": str(example / f"scenarios/{scenario}.yaml"), "name": "planted",
        "deadline": base["deadline"] if scenario != "kill" else "240s",
        "trainer": {"nodes": {node: {"run": run}}}}))
    done = subprocess.run([Path(sys.executable).with_name("diloco-chaos"), "run", planted, "--runs-dir", folder,
                           "--retries-inconclusive", "1"], cwd=example, capture_output=True, text=True, check=False)
    report = max(folder.glob("*/report.json"), default=None)
    if report is None:
        raise RuntimeError(done.stdout + done.stderr)
    return done.returncode, {check["name"]: check["verdict"] for check in json.loads(report.read_text())["checks"]}


def main() -> None:
    """See the module."""
    example = Path(sys.argv[1]).resolve()
    for bug in sys.argv[2:] or ["", *BUGS]:
        with tempfile.TemporaryDirectory() as folder:
            code, found = verdicts(example, Path(folder), bug)
        wrong = {word: [name for name, verdict in found.items() if verdict == word] for word in ("failed", "unknown")}
        print(f"{bug or 'as it is':32} exit {code}  failed: {', '.join(wrong['failed']) or '-'}  "
              f"unknown: {', '.join(wrong['unknown']) or '-'}", flush=True)


if __name__ == "__main__":
    main()
