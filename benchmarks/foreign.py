"""Plants every bug of the examples' tables (`examples/*/tests/bugs.yaml`), and looks who finds it, in real time.

Each scenario in which a bug does harm is also run with the trainer as it is: what fails then is a false alarm.
"""

from __future__ import annotations

import importlib
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

_EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
_SAVED = Path(__file__).with_name("detection-foreign.json")
_NEEDS = {"own": "torch", "huggingface": "transformers"}
"""Example -> the package that it trains with."""
HEALTHY = ""
"""The name of no bug: the trainer as it is."""


def planted(only: str) -> Iterator[tuple[str, str, Any]]:
    """Yield (example, scenario, bug or None for the trainer as it is) of all that have `only` in these three words."""
    sys.path.insert(0, str(_EXAMPLES))
    for example in _NEEDS:
        every = importlib.import_module("bed").bugs(_EXAMPLES / example)
        bugs = [bug for bug in every if only in f"{example} {bug.scenario} {bug}"]
        for scenario in dict.fromkeys(bug.scenario for bug in bugs):
            yield example, scenario, None
        yield from ((example, bug.scenario, bug) for bug in bugs)


def hunted(example: str, scenario: str, bug: Any) -> dict[str, Any]:
    """Run it: which checks failed, and how the run ended.

    Raises:
        RuntimeError: the package that the example trains with is not installed.
    """
    if not find_spec(_NEEDS[example]):
        raise RuntimeError(f"examples/{example} needs {_NEEDS[example]}: its README says how to install it")
    with tempfile.TemporaryDirectory() as folder:
        code, found = importlib.import_module("bed").verdicts(_EXAMPLES / example, Path(folder), bug, scenario)
    return {"example": example, "scenario": scenario, "bug": str(bug) if bug else HEALTHY,
            "named": list(bug.checks) if bug else [], "exit": code,
            "failed": [check for check, verdict in found.items() if verdict == "failed"]}


def measured(only: str) -> list[dict[str, Any]]:
    """Run all of these, one at a time; return the rows of the matrix, with those of an earlier time for the others."""
    rows = {_key(row): row for row in saved()}
    todo = list(planted(only))
    for each in todo:
        row = hunted(*each)
        print(json.dumps(row), file=sys.stderr, flush=True)
        rows[_key(row)] = row
        _SAVED.write_text(json.dumps(list(rows.values()), indent=1) + "\n")
    if not only:  # what is in no table any more is in no matrix
        there = {(example, scenario, str(bug) if bug else HEALTHY) for example, scenario, bug in todo}
        rows = {key: row for key, row in rows.items() if key in there}
        _SAVED.write_text(json.dumps(list(rows.values()), indent=1) + "\n")
    return list(rows.values())


def saved() -> list[dict[str, Any]]:
    """Return the rows of an earlier time."""
    rows: list[dict[str, Any]] = json.loads(_SAVED.read_text()) if _SAVED.exists() else []
    return rows


def _key(row: dict[str, Any]) -> tuple[str, str, str]:
    return row["example"], row["scenario"], row["bug"]


def counts(rows: list[dict[str, Any]]) -> dict[str, int]:
    """Return how many bugs there are, how many were found by a check that was named, by another one, and by none; and
    how many scenarios failed without a bug."""
    bugs = [row for row in rows if row["bug"]]
    named = [row for row in bugs if set(row["named"]) & set(row["failed"])]
    missed = [row for row in bugs if not row["failed"]]
    healthy = [row for row in rows if not row["bug"]]
    return {"bugs": len(bugs), "by_the_check_named": len(named), "by_another": len(bugs) - len(named) - len(missed),
            "missed": len(missed), "healthy": len(healthy), "false_alarms": sum(row["exit"] != 0 for row in healthy)}


def table(rows: list[dict[str, Any]]) -> str:
    """In Markdown: a line for each bug."""
    lines = ["| trainer | bug | scenario | named | failed |", "|---|---|---|---|---|"]
    lines += [f"| {row['example']} | {row['bug']} | {row['scenario']} | {' or '.join(row['named'])} | "
              f"{', '.join(_first_named(row)) or '-'} |" for row in rows if row["bug"]]
    return "\n".join(lines)


def _first_named(row: dict[str, Any]) -> list[str]:
    return sorted(row["failed"], key=lambda check: check not in row["named"])


def waiting(rows: list[dict[str, Any]]) -> list[str]:
    """Return the bugs of the tables that were not run yet, as `EXAMPLE: BUG`."""
    there = {_key(row) for row in rows}
    return [f"{example}: {bug}" for example, scenario, bug in planted("")
            if bug and (example, scenario, str(bug)) not in there]


def section(rows: list[dict[str, Any]], unknown: Sequence[str]) -> str:
    """Return the part of docs/detection.md that is about trainers that are not ours. `unknown`: bugs not run yet."""
    told = counts(rows)
    alarms = [f"{row['example']}/{row['scenario']} ({', '.join(row['failed']) or 'inconclusive'})"
              for row in rows if not row["bug"] and row["exit"] != 0]
    passed = f"{told['healthy'] - told['false_alarms']} of {told['healthy']}"
    return f"""## In trainers that are not ours

Bugs in the examples' trainers, from the tables `examples/*/tests/bugs.yaml`: each replaces some text of the trainer,
and names the check that must find it, or several of which one must. Runs are in real time. *Failed* is every check that
failed, the named one first.

Of {told["bugs"]} bugs {told["by_the_check_named"]} were found by the check that was named, {told["by_another"]} by
another one, and {told["missed"]} by none. Without a bug {passed} of the scenarios passed\
{"; not " + ", ".join(alarms) if alarms else ""}.

{table(rows)}
{"".join(chr(10) + f"Not run yet: {', '.join(unknown)}." + chr(10) if unknown else "")}"""
