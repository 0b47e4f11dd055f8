"""Performs cells: environments, runs, and what came of them, one JSON file for each cell."""

from __future__ import annotations

import hashlib
import json
import os
import runpy
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from benchmarks.league.cells import EXAMPLES, Cell
from benchmarks.league.reading import Outcome, outcome
from diloco_chaos.chaos.evidence.run_folder import RunFolder
from diloco_chaos.chaos.runner.run import judged

RUNS = 3
_OF_ALL = ("torch", "python")


class Run(Outcome):
    """A run of a cell, when and where it was made."""

    when: str
    machine: str
    versions: dict[str, str]


class Results(BaseModel):
    """What is kept of a cell."""

    model_config = ConfigDict(frozen=True)

    made_of: str
    """Digest of its scenario and its script: with another one the runs are of something else."""
    runs: list[Run]


def digest(cell: Cell) -> str:
    """Return what identifies a cell's scenario and script."""
    text = json.dumps([cell.scenario(), cell.scripts()], sort_keys=True) + " ".join(cell.contestant.wanted)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def kept(cell: Cell, folder: Path) -> list[Run]:
    """Return the runs of a cell that there are, of this scenario and script.

    Raises:
        ValueError: its file is not one of ours.
    """
    file = folder / f"{cell.key}.json"
    if not file.exists():
        return []
    try:
        results = Results.model_validate_json(file.read_text())
    except ValidationError as error:
        raise ValueError(f"{file} can't be read, remove it: {error}") from error
    return results.runs if results.made_of == digest(cell) else []


def keep(cell: Cell, folder: Path, runs: list[Run]) -> None:
    """Write a cell's runs, whole or not at all."""
    file = folder / f"{cell.key}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.with_suffix(".new").write_text(Results(made_of=digest(cell), runs=runs).model_dump_json(indent=1) + "\n")
    file.with_suffix(".new").replace(file)


class Environments:
    """Virtual environments with what contestants want, made once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made: dict[str, tuple[Path, dict[str, str]]] = {}

    def of(self, cell: Cell) -> tuple[Path, dict[str, str]]:
        """Return the folder of programs that a cell's runs need, and versions.

        Raises:
            subprocess.CalledProcessError: it can't be made.
        """
        wanted = " ".join(cell.contestant.wanted)
        if wanted not in self._made:
            self._made[wanted] = self._make(cell) if wanted else (Path(sys.executable).parent, {})
        return self._made[wanted]

    def _make(self, cell: Cell) -> tuple[Path, dict[str, str]]:
        folder = self._folder.resolve() / cell.contestant.wanted[0].partition("=")[0].partition("[")[0]
        make = runpy.run_path(str(EXAMPLES / "versions.py"))["environment"]
        return folder / "bin", make(folder, list(cell.contestant.wanted))


def perform(cell: Cell, environments: Environments, retries: int) -> Run:
    """Run a cell once, as a user would; again while it proves nothing, so many times at most.

    Raises:
        RuntimeError: there was no run; it says what the command said.
        subprocess.CalledProcessError: the environment can't be made.
    """
    programs, versions = environments.of(cell)
    with tempfile.TemporaryDirectory(prefix="diloco-chaos-league-") as name:
        folder = Path(name)
        file = cell.prepare(folder)
        done = subprocess.run(
            [programs / "diloco-chaos", "run", file, "--runs-dir", folder / "runs", "--retries-inconclusive",
             str(retries)], cwd=folder, capture_output=True, text=True, check=False)
        runs = sorted(folder.glob("runs/*/report.json"))
        if not runs:
            raise RuntimeError(f"{cell.key}: exit {done.returncode}\n{done.stdout}{done.stderr}")
        last = RunFolder.open(runs[-1].parent)
        found, made_with = outcome(judged(last), cell.contestant.round_s), last.manifest()
    return Run(when=datetime.now(UTC).isoformat(timespec="minutes"), machine=_machine(),
               versions=versions | {name: str(made_with[name]) for name in _OF_ALL},
               **found.model_dump() | {"why": found.why.replace(f"{folder}/", "")})


def _machine() -> str:
    names = [line.partition(":")[2].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
             if line.startswith("model name")]
    return f"{len(os.sched_getaffinity(0))} cores" + (f", {names[0]}" if names else "")
