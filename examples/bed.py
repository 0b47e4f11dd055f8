"""Bugs that are planted in the examples' trainers, one at a time, and who finds them.

    python bed.py EXAMPLE [BUG...]      prints which check finds which; without BUG all, and the example as it is

`EXAMPLE/tests/bugs.yaml` is a table of bugs. Each has its name (`bug`), the `checks` of which one must find it, written
down before it was run, the `scenario` in which it does harm, and `edits`: in which `file` which `old` text becomes
which `new` one. A bug without edits is in `EXAMPLE/tests/planted.py BUG ARGUMENTS...`: `train.py` with that bug.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from ruamel.yaml import YAML

HERE = Path(__file__).resolve().parent


class Edit(NamedTuple):
    """A text in a file of an example that is replaced by another."""

    file: str
    old: str
    new: str


class Bug(NamedTuple):
    """A bug that can be planted in an example's trainer."""

    name: str
    checks: tuple[str, ...]
    """One of these must fail; named beforehand."""
    scenario: str
    """In which it does harm; without the bug all its checks pass."""
    edits: tuple[Edit, ...]

    def __str__(self) -> str:
        return self.name


def bugs(example: Path) -> list[Bug]:
    """Return the bugs of an example's table."""
    table = YAML(typ="safe").load(example / "tests/bugs.yaml")
    return [Bug(row["bug"], tuple(row["checks"]), row["scenario"],
                tuple(Edit(**edit) for edit in row.get("edits", [])) or (_through_planted(row["bug"]),))
            for row in table]


def _through_planted(name: str) -> Edit:
    """The edit of an example's own scenario that has `tests/planted.py` run in the trainer's place."""
    return Edit("scenarios/base.yaml", "train.py {", f"tests/planted.py '{name}' {{")


def plant(example: Path, folder: Path, edits: tuple[Edit, ...] = ()) -> Path:
    """Copy an example into a folder, make these edits, and return the copy.

    Raises:
        ValueError: the trainer has changed, and the bug has no place in it any more, or more than one.
    """
    copy = folder / example.name
    shutil.copytree(example, copy, dirs_exist_ok=True, ignore=shutil.ignore_patterns("runs", "__pycache__"))
    shutil.copy(HERE / "held.py", folder)
    for file, old, new in edits:
        text = (copy / file).read_text()
        if text.count(old) != 1:
            raise ValueError(f"{old!r} is {text.count(old)} times in {example.name}/{file}")
        (copy / file).write_text(text.replace(old, new))
    return copy


def verdicts(example: Path, folder: Path, bug: Bug | None = None,
             scenario: str = "kill") -> tuple[int, dict[str, str]]:
    """Run a scenario of an example with a bug in it, in the bug's own scenario, or with none: the exit code, and
    check -> verdict. The runs are in `runs` of the folder."""
    copy = plant(example, folder, bug.edits if bug else ())
    done = subprocess.run([Path(sys.executable).with_name("diloco-chaos"), "run",
                           f"scenarios/{bug.scenario if bug else scenario}.yaml", "--runs-dir", folder / "runs",
                           "--retries-inconclusive", "2"],
                          cwd=copy, capture_output=True, text=True, check=False)
    report = max(folder.glob("runs/*/report.json"), default=None)
    if report is None:
        raise RuntimeError(done.stdout + done.stderr)
    return done.returncode, {check["name"]: check["verdict"] for check in json.loads(report.read_text())["checks"]}


def main() -> None:
    """See the module."""
    example, wanted = Path(sys.argv[1]).resolve(), sys.argv[2:]
    every = bugs(example)
    healthy = [(None, scenario) for scenario in dict.fromkeys(bug.scenario for bug in every) if not wanted]
    for bug, scenario in [*healthy, *((bug, bug.scenario) for bug in every if not wanted or bug.name in wanted)]:
        with tempfile.TemporaryDirectory() as folder:
            code, found = verdicts(example, Path(folder), bug, scenario)
        wrong = {word: [name for name, verdict in found.items() if verdict == word] for word in ("failed", "unknown")}
        print(f"{bug.name if bug else 'as it is, ' + scenario:52} exit {code}  "
              f"failed: {', '.join(wrong['failed']) or '-'}  unknown: {', '.join(wrong['unknown']) or '-'}", flush=True)


if __name__ == "__main__":
    main()
