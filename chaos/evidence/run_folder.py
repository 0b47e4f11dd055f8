"""The folder of a run: what is in it, how it is made, and how it is recognised."""

from __future__ import annotations

import json
import os
import platform
import re
import secrets
import shlex
import shutil
import stat
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from diloco_chaos.chaos.scenario import plan as plans
from diloco_chaos.chaos.scenario.plan import Plan
from diloco_chaos.harness.base.errors import UserError, all_printable, first, printable
from diloco_chaos.harness.base.fingerprint import source_digest
from diloco_chaos.harness.base.processes import Identity, identity
from diloco_chaos.harness.base.units import shortened
from diloco_chaos.harness.record.storage.disk import STATE
from diloco_chaos.harness.record.storage.files import bytes_of, last_lines, strange, write_whole
from diloco_chaos.harness.record.storage.log_ends import telling
from diloco_chaos.harness.record.tape.events import SCHEMA
from diloco_chaos.harness.record.tape.reading import Tape
from diloco_chaos.harness.trainers.node.settings import SETTINGS, NodeSettings

_NAME = r"\d{8}-\d{6}-[a-z0-9-]+-[0-9a-f]{4,8}"
RUNS = Path("runs")
"""Where folders of runs are made unless a user says otherwise."""
LATEST = "latest"
_MOST_NAMED = 5
_LONGEST_PLACE = 40
_OPTIONS = r"( --on [a-z0-9][a-z0-9_-]{0,40})?"
STACKS = "stacks"
_MOST_OF_STACKS = 400
_LOOKED_AT = 200
"""Lines at the end of a log in which an exception is looked for."""
_STACK = "(most recent call first):"  # faulthandler's words above each thread's frames


class FolderError(UserError):
    """A folder that is not a run's, or that can't be made; the message says what to do."""


def cache_folder() -> Path:
    """Return the folder where corpora and references are kept between runs (XDG_CACHE_HOME)."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "diloco-chaos"


def new_name(of: str) -> str:
    """A folder's name by time, what it is of, and chance."""
    return f"{datetime.now(UTC).strftime('%Y%m%d-%H%M%S')}-{of}-{secrets.token_hex(4)}"


@dataclass(frozen=True)
class RunFolder:
    """`runs/<id>/`."""

    path: Path

    @classmethod
    def create(cls, runs: Path, name: str) -> RunFolder:
        """A new folder, named by time, scenario and chance.

        Raises:
            FolderError: it can't be made there.
        """
        path = runs / new_name(name)
        _make(path / "tape")
        return cls(path.resolve())

    @staticmethod
    def prepare(runs: Path) -> None:
        """Make the place of all runs before there is anything to lose.

        Raises:
            FolderError: it can't be made, or nothing can be written there.
        """
        new = not runs.exists()
        _make(runs, exist_ok=True)
        if new:  # runs are no part of anybody's repository
            with suppress(OSError):
                (runs / ".gitignore").write_text("*\n")
        if not os.access(runs, os.W_OK | os.X_OK):
            raise FolderError(f"{runs}: nothing can be written there; name another place with --runs-dir")

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """Return the folder of an existing run.

        Raises:
            FolderError: this is not the folder of a run, or of one that another version recorded.
        """
        if not path.is_dir():
            what = "not a folder" if path.exists() else "no such folder"
            raise FolderError(f"{path}: {what}; a run's folder is named at the end of its report, "
                              f"like runs/20260101-120000-flagship-1a2b")
        missing = [name for name in ("plan.json", "tape") if not (path / name).exists()]
        if missing:
            raise FolderError(f"{path}: not the folder of a run: it has no {' and no '.join(missing)}")
        if odd := strange(path, "a run", links_in=STATE):  # trainers link to the newest of their checkpoints
            raise FolderError(odd)
        folder = cls(path.resolve())
        if (schema := folder.manifest().get("tape_schema", SCHEMA)) != SCHEMA:
            raise FolderError(f"{path}: its tape is of schema {schema!s:.20}, and this version reads {SCHEMA}: "
                              f"judge it with the version that recorded it, which its manifest.json names")
        return folder

    def plan(self) -> Plan:
        """The frozen plan.

        Raises:
            ScenarioError: it is not a plan, or was altered.
        """
        return plans.load(self.path / "plan.json")

    def settings(self, plan: Plan) -> NodeSettings:
        """Return the settings that its nodes were given, held against its plan, whose trainer decides what is imported.

        Raises:
            FolderError: it is of another trainer or cluster, or can't be understood.
        """
        recorded = self.document(SETTINGS)
        if recorded.get("trainer") == plan.trainer.path:
            try:
                settings = NodeSettings.model_validate(recorded)
            except ValidationError as error:
                raise FolderError(f"{self.path}: {SETTINGS} can't be understood: {first(error)}") from error
            if settings.cluster == plan.cluster:
                return settings
        raise FolderError(f"{self.path}: {SETTINGS} is "
                          f"{'of another cluster than the plan' if recorded else 'not there'}; "
                          f"run it again: {self.repeat}")

    def tape(self) -> Tape:
        """Return all that was recorded."""
        return Tape.read(self.path / "tape")

    def manifest(self) -> dict[str, Any]:
        """Return what the run was made of; empty where the manifest is missing or torn."""
        return self.document("manifest.json")

    @property
    def harness(self) -> Identity:
        """Return the harness process that performs or performed the run; pid 0 where the manifest does not say."""
        try:
            return Identity(*map(int, self.manifest()["harness"]))
        except (ValueError, KeyError, TypeError):
            return Identity(0, 0)

    @property
    def over(self) -> bool:
        """Return whether no process writes to the folder any more: the harness has judged the run, or is dead."""
        return (self.path / "report.json").exists() or identity(self.harness.pid) != self.harness

    @property
    def repeat(self) -> str:
        """Return the command that repeats the run."""
        recorded = self.manifest().get("repeat")
        options = recorded.rpartition("plan.json")[2] if isinstance(recorded, str) else ""
        known = options if re.fullmatch(_OPTIONS, options) else ""  # a user types it, whatever wrote the manifest
        return f"diloco-chaos run --plan {shlex.quote(str(self.path / 'plan.json'))}{known}"  # it may have been moved

    @property
    def place(self) -> str:
        """Return where the run was, as it follows `--on`; empty where the manifest does not say."""
        recorded = self.manifest().get("backend")
        return shortened(recorded, _LONGEST_PLACE) if isinstance(recorded, str) else ""

    def corpus(self) -> Path | None:
        """Return the file that the run was trained on, which the cache has under its digest; None where it is not
        known. The folder may come from anybody: it decides of no other file."""
        corpus = self.manifest().get("corpus")
        digest = str(corpus.get("digest")) if isinstance(corpus, dict) else ""
        return cache_folder() / "corpora" / f"{digest}.bin" if digest.isalnum() else None

    def document(self, name: str) -> dict[str, Any]:
        """Return a JSON file of the folder; empty where it is missing, torn, longer than any that a run leaves, or no
        file: a list of runs, and the report of the next one, read folders that no user has opened."""
        path = self.path / name
        try:
            content = json.loads(bytes_of(path)) if stat.S_ISREG(path.lstat().st_mode) else {}
        except (OSError, ValueError, RecursionError):
            return {}
        return all_printable(content) if isinstance(content, dict) else {}

    def write(self, name: str, content: dict[str, Any]) -> None:
        """Write a JSON file, whole or not at all."""
        self.write_text(name, json.dumps(content, indent=2) + "\n")

    def write_text(self, name: str, content: str) -> None:
        """Write a file, whole or not at all."""
        write_whole(self.path / name, content)

    def log_tail(self, node: str, lines: int = 8) -> list[str]:
        """The last lines of a node's newest log; of a stack at its end the innermost frames, and an exception that
        stands above the last ones and came first."""
        logs = sorted((self.path / "logs").glob(f"{node}.*.log"), key=lambda path: path.stat().st_mtime)
        text = last_lines(logs[-1]) if logs else []
        stacks = [index for index, line in enumerate(text) if line.endswith(_STACK)]
        return list(map(printable, text[stacks[-1]:][:lines] if stacks else telling(text[-_LOOKED_AT:], lines)))

    @property
    def stacks(self) -> dict[str, list[str]]:
        """Return where processes stood that did not end when the run did: node and number of its process -> lines, as
        far as they were kept."""
        kept = {path.stem: last_lines(path)[:_MOST_OF_STACKS] for path in sorted((self.path / STACKS).glob("*.txt"))
                if stat.S_ISREG(path.lstat().st_mode)}
        return {printable(name): list(map(printable, lines)) for name, lines in kept.items() if lines}


def all_runs(runs: Path) -> list[Path]:
    """The folders of all runs in this one, the oldest first; what is no run's folder, and links, are left out."""
    return sorted(path for path in runs.glob("*") if re.fullmatch(_NAME, path.name) and not path.is_symlink()
                  and (path / "plan.json").is_file() and (path / "tape").is_dir())


def named(name: str, runs: Path = RUNS) -> Path:
    """Return the folder that a name means: a path, `latest`, how the name of one in `runs` begins, or a part of it.

    Raises:
        FolderError: several are meant, or there is no latest.
    """
    if Path(name).exists() or "/" in name:
        return Path(name)
    folders = all_runs(runs)
    if name == LATEST:
        if not folders:
            raise FolderError(f"{LATEST}: there are no runs in {runs}; name the folder of one, or go to where runs/ is")
        return folders[-1]
    matches = ([path for path in folders if path.name.startswith(name)]
               or [path for path in folders if name in path.name])
    if len(matches) > 1:
        raise FolderError(f"{name}: {len(matches)} runs are called like that: "
                          f"{', '.join(path.name for path in matches[-_MOST_NAMED:])}; say more of the name")
    if not matches:
        raise FolderError(f"{name}: no such folder, and no run in {runs} is called like that; "
                          f"`diloco-chaos runs` lists them")
    return matches[0]


def thin_out(runs: Path, keep: int) -> list[Path]:
    """Remove the folders of all runs but the newest `keep`, and return them; what is no run's folder, and runs that go
    on, stay.

    Raises:
        FolderError: one of them can't be removed.
    """
    folders, removed = all_runs(runs), []
    for path in folders[:len(folders) - keep]:
        if not RunFolder(path).over:
            continue
        try:
            shutil.rmtree(path)
        except OSError as error:
            raise FolderError(f"{path}: can't be removed: {error.strerror}") from error
        removed.append(path)
    return removed


def _make(path: Path, exist_ok: bool = False) -> None:
    try:
        path.mkdir(parents=True, exist_ok=exist_ok)
    except OSError as error:
        raise FolderError(f"{path}: can't be made: {error.strerror}; name another place with --runs-dir") from error


def environment() -> dict[str, Any]:
    """Versions and machine, for the manifest; `trainer`: the digest of its sources."""
    def of(package: str) -> str:
        try:
            return version(package)
        except PackageNotFoundError:
            return "not installed"
    return {"diloco_chaos": of("diloco-chaos"), "python": platform.python_version(), "torch": of("torch"),
            "numpy": of("numpy"), "trainer": source_digest(), "kernel": platform.release(),
            "cores": len(os.sched_getaffinity(0))}


def changed(manifest: dict[str, Any]) -> list[str]:
    """Say what of this environment is not what a run had by its manifest, and may make its numbers differ: those of the
    whole run, or of what lay before it was resumed."""
    now = environment()
    differences = []
    for then in [manifest, *(manifest.get("resumed") or {}).get("environments", [])]:
        differences += [f"it ran with {name} {then.get(name)}, this is {now[name]}" for name in ("torch", "numpy")
                        if then.get(name) != now[name]]
        if then.get("trainer") != now["trainer"]:
            differences.append("the trainer's sources are not those that it ran with: numbers may differ, too")
    return list(dict.fromkeys(differences))
