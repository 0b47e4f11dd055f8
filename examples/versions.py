"""Runs every scenario of the examples with the versions that their READMEs pin, and with the newest ones.

    python versions.py FOLDER [EXAMPLE...]     keeps environments and runs in FOLDER; without EXAMPLE all

It prints a verdict for each, the README's beside it, and exits with 1 where one of them differs.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
_INSTALL = re.compile(r"^pip install (.*)$", re.MULTILINE)
_ROW = re.compile(r"^\| `([\w-]+)\.yaml` \|.*?\b(PASSED|FAILED|INCONCLUSIVE)\b", re.MULTILINE)


def requirements(readme: str) -> list[str]:
    """Return what a README's first `pip install` names beside this repository."""
    found = _INSTALL.search(readme)
    return [word for word in shlex.split(found[1], comments=True) if not word.startswith("../..")] if found else []


def expected(readme: str) -> dict[str, str]:
    """Return the verdicts in a README's table, by scenario; without those of which it promises none."""
    return dict(_ROW.findall(readme))


def environment(folder: Path, wanted: list[str]) -> dict[str, str]:
    """Make a virtual environment with this repository, torch for processors and what is wanted; return the versions."""
    pip = [str(folder / "bin/python"), "-m", "pip", "--disable-pip-version-check"]
    make = [os.environ.get("MAKE", "make"), "--silent", "-C", HERE.parent]
    subprocess.run([*make, f"VENV={folder}", f"{folder}/.torch"], check=True, stdout=subprocess.DEVNULL)
    ours = f"{HERE.parent}[trainer]"
    subprocess.run([*pip, "install", "--quiet", "--upgrade", "--editable", ours, *wanted], check=True)
    listed = subprocess.run([*pip, "list", "--format", "json"], check=True, capture_output=True, text=True)
    names = {re.split(r"[\[=<>]", word)[0].lower() for word in wanted}
    return {entry["name"]: entry["version"] for entry in json.loads(listed.stdout) if entry["name"].lower() in names}


def verdict(environment: Path, example: Path, scenario: str, runs: Path) -> str:
    """Run a scenario: PASSED, FAILED with the checks that failed, INCONCLUSIVE, or why it can't be run."""
    done = subprocess.run([environment / "bin/diloco-chaos", "run", f"scenarios/{scenario}.yaml", "--runs-dir", runs,
                           "--retries-inconclusive", "1"], cwd=example, capture_output=True, text=True, check=False)
    report = max(runs.glob("*/report.json"), default=None)
    if report is None:
        return "not run: " + (done.stderr.strip().splitlines() or ["it said nothing"])[0]
    failed = [check["name"] for check in json.loads(report.read_text())["checks"] if check["verdict"] == "failed"]
    return {0: "PASSED", 1: "FAILED"}.get(done.returncode, "INCONCLUSIVE") + (f" {', '.join(failed)}" if failed else "")


def compared(example: Path, folder: Path) -> bool:
    """Print the verdicts of an example's scenarios; return whether all are the same with both, and what the README
    says."""
    readme = (example / "README.md").read_text()
    pinned, promised = requirements(readme), expected(readme)
    sets = {"pinned": pinned, "newest": [word.partition("==")[0] for word in pinned]}
    versions = {which: environment(folder / f"{example.name}-{which}", wanted) for which, wanted in sets.items()}
    if versions["pinned"] == versions["newest"]:
        del versions["newest"]
    told = {which: ", ".join(map(" ".join, have.items())) for which, have in versions.items()}
    print(f"\n{example.name}: " + "; ".join(f"{which} {have or 'nothing'}" for which, have in told.items()), flush=True)
    same = True
    for scenario in sorted(path.stem for path in (example / "scenarios").glob("*.yaml")):
        found = {which: verdict(folder / f"{example.name}-{which}", example, scenario,
                                folder / "runs" / f"{example.name}-{which}-{scenario}") for which in versions}
        words = {each.split()[0] for each in [*found.values(), *filter(None, [promised.get(scenario)])]}
        changed = len(words - {"not"}) > 1 or len(set(found.values())) > 1
        same &= not changed
        print(f"  {'!' if changed else ' '} {scenario:20} README {promised.get(scenario) or '-':13} " + "  ".join(
            f"{which} {each}" for which, each in found.items()), flush=True)
    return same


def main() -> int:
    """See the module."""
    folder = Path(sys.argv[1]).resolve()
    every = sorted(path.parent.parent.name for path in HERE.glob("*/scenarios/base.yaml"))
    same = [compared(HERE / name, folder) for name in sys.argv[2:] or every]
    return 0 if all(same) else 1


if __name__ == "__main__":
    sys.exit(main())
