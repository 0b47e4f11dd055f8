"""What is wrong with a file, and where: problems with line, column, and the nearest valid name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from diloco_chaos.harness.base.errors import UserError


@dataclass(frozen=True)
class Problem:
    """Something wrong with a scenario, and where."""

    message: str
    line: int = 0
    column: int = 0

    def at(self, file: Path | str) -> str:
        """`file:line:column: message`."""
        place = f":{self.line}:{self.column}" if self.line else ""
        return f"{file}{place}: {self.message}"


class ScenarioError(UserError):
    """A scenario that can't be run; carries all problems at once."""

    def __init__(self, file: Path | str, problems: Sequence[Problem]) -> None:
        self.problems = sorted(problems, key=lambda problem: (problem.line, problem.column))
        super().__init__("\n".join(problem.at(file) for problem in self.problems))


class Numbers(NamedTuple):
    """Faults that are looked at, in a file that may hold others."""

    places: list[int]
    """Index in the file of each."""
    names: list[str]
    """What every fault of the file is called."""


def fault_names(document: Mapping[str, Any]) -> list[str]:
    """Return what the faults of a file are called, everywhere: by their id, or f1, f2, ..."""
    entries = document.get("faults")
    return [str((entry.get("id") if isinstance(entry, dict) else "") or f"f{number}")
            for number, entry in enumerate(entries, 1)] if isinstance(entries, list) else []


def place(raw: Any, where: Sequence[Any]) -> tuple[int, int]:
    """Line and column (from 1) of the deepest part of a location that the file has. `raw` is ruamel's."""
    line, column, here = 1, 1, raw
    for part in where:
        marks = getattr(here, "lc", None)
        if isinstance(here, dict):
            part = next((key for key in here if str(key) == str(part)), part)  # YAML's keys need not be text
        try:
            line, column = (marks.key(part) if isinstance(here, dict) else marks.item(part))  # type: ignore[union-attr]
            line, column, here = line + 1, column + 1, here[part]
        except (KeyError, IndexError, TypeError, AttributeError):
            if isinstance(here, dict) and part == "targets":
                continue
            break
    return line, column
