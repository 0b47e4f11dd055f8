"""What an exploration keeps in its folder: every result as a line, and what broke as scenario files."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sized
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from diloco_chaos.harness.base.errors import UserError
from diloco_chaos.harness.base.workers import Numbered
from diloco_chaos.harness.record.storage.files import bytes_of, strange, write_whole

_RESULTS = "results.jsonl"
_SETTINGS = "exploration.json"
_SEEDS = "seeds.jsonl"
_EARLIER = "earlier"
_MOST_SEEDS, _LONGEST_LINE = 500, 1 << 24
_VERSION = "sources"
"""Of the settings, what may be another one."""


class ExplorationError(UserError):
    """The corpus folder can't be used; the message says why and what to do."""


class TriedSchedule(Numbered):
    """One schedule that was run."""

    faults: tuple[dict[str, Any], ...]
    outcome: str
    failed: tuple[str, ...] = ()
    """Checks that failed; `crashed` where the run itself broke."""
    undecided: tuple[tuple[str, str], ...] = ()
    """Checks that could not be made, and why not."""
    evidence: tuple[str, ...] = ()
    pairs: tuple[tuple[str, str], ...] = ()
    aim: tuple[str, str] | None = None
    sequences: tuple[tuple[str, str], ...] = ()
    traces: tuple[str, ...] = ()
    lines: tuple[tuple[str, str], ...] = ()
    """Of commands: nodes, and the kinds of lines that they wrote from the steady state on."""
    measured: dict[str, float] = Field({})
    """Of commands: how long they trained, how many rounds they made, how large their state grew."""
    repeats: int | None = None
    """The number of the schedule that this one does again, to see whether that fails every time."""

    @property
    def decided(self) -> bool:
        """Return whether it proved something: a check failed, or every one could be made."""
        return bool(self.failed) or not self.undecided


class SearchState:
    """How much of a search proved something, and how it ends."""

    tried: list[TriedSchedule]
    found: Sized
    """What broke."""

    @property
    def decided(self) -> int:
        """Schedules that proved something."""
        return sum(tried.decided for tried in self.tried)

    @property
    def exit_code(self) -> int:
        """0 nothing broke, 1 something did, 3 more than half of the schedules proved nothing."""
        return 1 if self.found else 3 if 2 * self.decided < len(self.tried) else 0


class Seed(BaseModel):
    """A schedule of an earlier version's exploration that is tried first."""

    model_config = ConfigDict(frozen=True)

    number: int
    """By which its cluster was drawn."""
    faults: tuple[dict[str, Any], ...]


class ScheduleCorpus:
    """The folder. One process writes to it at a time. What an earlier version's exploration had in it that broke
    something, or was the first to bring something about, are the seeds of this one."""

    def __init__(self, folder: Path, settings: dict[str, Any]) -> None:
        """Raises:
            ExplorationError: it is another exploration's, or can't be written.
        """
        self.folder = folder
        self._results = folder / _RESULTS
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if odd := strange(folder, "an exploration"):
                raise ExplorationError(odd)
            settings_file = folder / _SETTINGS
            before = _settings(settings_file) if settings_file.exists() else None
            if before is not None and {**before, _VERSION: ""} != {**settings, _VERSION: ""}:
                raise ExplorationError(f"{folder}: holds an exploration with other settings; name another folder with "
                                       f"--corpus-dir, or remove this one")
            self.seeds = self._seeds()
            if before is not None and before != settings:
                self._begin_again()
            if before != settings:
                write_whole(settings_file, json.dumps(settings, indent=2) + "\n")
            self.known = self._known()
        except (OSError, ValueError) as error:
            raise ExplorationError(f"{folder}: can't be used: {error}; name another folder with "
                                   f"--corpus-dir") from error

    def origin(self, number: int) -> int:
        """The number by which a schedule's cluster is drawn."""
        return self.seeds[number].number if 0 <= number < len(self.seeds) else number

    def _seeds(self) -> list[Seed]:
        seeds_file = self.folder / _SEEDS
        return [Seed.model_validate_json(line)
                for line in bytes_of(seeds_file).splitlines()] if seeds_file.exists() else []

    def _begin_again(self) -> None:
        """Turn an earlier version's results into seeds, and move its scenario files to `earlier`."""
        if self._results.exists():
            traces: set[str] = set()
            kept: list[Seed] = []
            for _, tried in sorted(self._known().items()):
                if tried.faults and (tried.failed or not traces.issuperset(tried.traces)) and len(kept) < _MOST_SEEDS:
                    kept.append(Seed(number=self.origin(tried.number), faults=tried.faults))
                traces.update(tried.traces)
            self.seeds = kept
            write_whole(self.folder / _SEEDS, "".join(seed.model_dump_json() + "\n" for seed in kept))
            self._results.unlink()
        earlier = self.folder / _EARLIER
        earlier.mkdir(exist_ok=True)
        for scenario_file in [*self.folder.glob("*.yaml"), *self.folder.glob("failing/*.yaml")]:
            scenario_file.replace(earlier / scenario_file.name)

    def _known(self) -> dict[int, TriedSchedule]:
        """Results from before. The last line may be torn: whoever wrote it was killed."""
        known: dict[int, TriedSchedule] = {}
        whole = 0
        for line in self._lines():
            if not line.endswith(b"\n") and len(line) < _LONGEST_LINE:
                break
            try:
                tried = TriedSchedule.model_validate_json(line)
            except ValueError:
                raise ExplorationError(f"{self._results}, line {len(known) + 1}: is no result of an exploration; "
                                       f"remove the line, or name another folder with --corpus-dir") from None
            known[tried.number] = tried
            whole += len(line)
        if self._results.exists():
            with open(self._results, "r+b") as file:
                file.truncate(whole)
        return known

    def _lines(self) -> Iterator[bytes]:
        if self._results.exists():
            with open(self._results, "rb") as file:
                yield from iter(partial(file.readline, _LONGEST_LINE), b"")

    def append(self, tried: TriedSchedule) -> None:
        """One more result."""
        with open(self._results, "a", encoding="utf-8") as file:
            file.write(tried.model_dump_json() + "\n")

    def failing(self, number: int) -> Path:
        """Return the path to which a schedule that broke something is written."""
        (self.folder / "failing").mkdir(exist_ok=True)
        return self.folder / "failing" / f"{number:06d}.yaml"

    def smallest(self, check: str) -> Path:
        """Return the path to which the smallest schedule that breaks this check is written."""
        return self.folder / f"{check.replace('_', '-')}.yaml"


def _settings(path: Path) -> dict[str, Any]:
    content = json.loads(bytes_of(path))
    if not isinstance(content, dict):
        raise ValueError(f"{path.name} holds no settings")
    return content
