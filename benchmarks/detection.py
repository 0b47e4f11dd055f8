"""Plants every bug of tests/mutants and of the examples, and looks who finds it: `make detection`.

Each bug of tests/mutants is run twice: in the run that is written beside it, which says which checks see it at all;
and by an exploration over drawn clusters, which knows nothing of it, until something fails. Bugs of trainers that are
not ours are in `benchmarks/foreign.py`. Progress on standard error; the matrices as tables on standard output and in
docs/detection.md, and as JSON in `benchmarks/detection.json` and `detection-foreign.json`. Exits with 1 where a bar is
missed, by either matrix: 95% found by a failed verdict, 85% by the check that was named beforehand.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from benchmarks import foreign
from diloco_chaos.chaos.exploration.explore import SCHEDULES, Exploration, Search, explore
from diloco_chaos.chaos.exploration.strategies import scenario
from diloco_chaos.harness.base.workers import WorkerProcesses

_TESTS = Path(__file__).resolve().parent.parent / "tests"
_SAVED = Path(__file__).with_name("detection.json")
_PAGE = Path(__file__).resolve().parent.parent / "docs" / "detection.md"
_MOST_SCHEDULES = 96
_FOUND, _BY_NAME = 0.95, 0.85


def mutants() -> list[tuple[str, Any]]:
    """Return (class of bugs, mutant) for every mutant in `tests/mutants/`."""
    sys.path[:0] = [str(_TESTS / "support"), str(_TESTS / "mutants")]
    return [(file.stem.removeprefix("test_"), mutant) for file in sorted((_TESTS / "mutants").glob("test_*.py"))
            for mutant in import_module(file.stem).MUTANTS]


def hunted(mutant: Any, jobs: int) -> dict[str, Any]:
    """What finds it: in its own run, and in an exploration."""
    planting = import_module("planting")
    with pytest.MonkeyPatch.context() as patch:
        mutant.plant(patch)
        own = planting.failed(mutant.faults, mutant.cluster)
        began, pool = time.monotonic(), WorkerProcesses(SCHEDULES, jobs)  # forked now: the bug is in its processes, too
        try:
            with tempfile.TemporaryDirectory() as folder:
                state = explore(Search(scenario(budget="250 steps"), draws_clusters=True), Path(folder), pool,
                                runs=_MOST_SCHEDULES, stop=lambda state: bool(state.found))
                return {"own": own, "seconds": round(time.monotonic() - began, 1), **_first(state)}
        finally:
            pool.close()


def _first(state: Exploration) -> dict[str, Any]:
    """The first schedule that failed: its number, counted from 1, its checks, and how many faults the smallest has."""
    if not state.found:
        return {"schedules": None, "explored": [], "faults": None}
    first = min((tried for tried in state.tried if tried.failed), key=lambda tried: tried.number)
    smallest = state.found[first.failed[0]][1].read_text()
    return {"schedules": first.number + 1, "faults": smallest.count("\n- "),
            "explored": sorted({check for tried in state.tried for check in tried.failed})}


def main() -> int:
    """The command line; see the module."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--only", default="", help="bugs whose class or example, scenario and name have this in them")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--matrix", choices=("built-in", "foreign"), action="append",
                        help="only this one; the other's part of the page stays as it is")
    given = parser.parse_args()
    holds = True
    if "built-in" in (given.matrix or ["built-in"]):
        holds &= _built_in(given.only, given.jobs)
    if "foreign" in (given.matrix or ["foreign"]):
        rows = foreign.measured(given.only)
        told = foreign.counts(rows)
        print(foreign.table(rows), json.dumps(told), sep="\n")
        holds &= _enough(told["bugs"], told["bugs"] - told["missed"], told["by_the_check_named"])
    _PAGE.write_text(page(json.loads(_SAVED.read_text()), foreign.saved(), foreign.waiting(foreign.saved())))
    return 0 if holds else 1


def _built_in(only: str, jobs: int) -> bool:
    """Plant the bugs of the built-in trainer; return whether the bars are kept."""
    rows = []
    for room, mutant in mutants():
        if only in f"{room} {mutant}":
            rows.append({"class": room, "bug": str(mutant), "named": mutant.check, **hunted(mutant, jobs)})
            print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    detected = [row for row in rows if row["own"] or row["explored"]]
    named = [row for row in rows if row["named"] in (*row["own"], *row["explored"])]
    results = {"bugs": len(rows), "found": len(detected), "by_the_check_named": len(named),
               "explored": sum(bool(row["explored"]) for row in rows),
               "explored_by_the_check_named": sum(row["named"] in row["explored"] for row in rows),
               "by_check": Counter(check for row in rows for check in {*row["own"], *row["explored"]}), "rows": rows}
    if not only:
        _SAVED.write_text(json.dumps(results, indent=1) + "\n")
    print(table(rows))
    print(json.dumps({key: value for key, value in results.items() if key != "rows"}))
    return _enough(len(rows), len(detected), len(named))


def _enough(bugs: int, found: int, by_name: int) -> bool:
    return bugs > 0 and found >= _FOUND * bugs and by_name >= _BY_NAME * bugs


def page(results: dict[str, Any], foreigners: list[dict[str, Any]], unknown: Sequence[str]) -> str:
    """Return the text of docs/detection.md: the matrix of the built-in trainer, and that of others."""
    seconds = sum(row["seconds"] for row in results["rows"])
    return f"""# Which check finds which bug

Made by `make detection`, which plants bugs one by one: those of `tests/mutants/` in the built-in trainer, and
[those of the examples](#in-trainers-that-are-not-ours). `python -m benchmarks.detection --matrix foreign` plants
only the latter.

## In the built-in trainer

Each has the check named beforehand that
ought to find it. *Its own run* is the one that is written beside the bug; *explored* is what an exploration of drawn
clusters and faults finds that knows nothing of the bug, in {_MOST_SCHEDULES} schedules at the most, with the number of
the first schedule that failed, the seconds that all of it took, and how many faults the smallest schedule has that
still fails.

Of {results["bugs"]} bugs {results["found"]} were found by a failed verdict, {results["by_the_check_named"]} \
by the check that
was named; by explorations alone {results["explored"]} and {results["explored_by_the_check_named"]}. \
The explorations took
{seconds / 60:.0f} minutes.

{table(results["rows"])}

{foreign.section(foreigners, unknown)}"""


def table(rows: list[dict[str, Any]]) -> str:
    """In Markdown: a line for each bug."""
    lines = ["| class | bug | named | its own run | explored | after schedule | seconds | faults |",
             "|---|---|---|---|---|---|---|---|"]
    for row in rows:
        after, small = ("-" if row[key] is None else row[key] for key in ("schedules", "faults"))
        lines.append(f"| {row['class']} | {row['bug'].replace('_', ' ')} | {row['named']} | "
                     f"{_short(row['own'], row['named'])} | {_short(row['explored'], row['named'])} | {after} | "
                     f"{row['seconds']:.0f} | {small} |")
    return "\n".join(lines)


def _short(checks: list[str], named: str) -> str:
    """The check that was named first, and how many others."""
    if not checks:
        return "-"
    first = named if named in checks else checks[0]
    return first + (f" and {len(checks) - 1} more" if len(checks) > 1 else "")


if __name__ == "__main__":
    sys.exit(main())
