"""What an exploration found, for people and for programs."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from diloco_chaos.chaos.exploration.explore import Exploration

_MOST_REASONS = 5
_NAMES_AND_NUMBERS = re.compile(r"learner-\d+|\bf\d+\b|\d[\d.,]*( m?s\b)?")


def document(state: Exploration) -> dict[str, Any]:
    """Return the state of an exploration in a form for programs."""
    return {"runs": len(state.tried), "decided": state.decided, "states": {"possible": len(state.possible),
            "hit": len(set(state.hit) & state.possible), "never": [list(pair) for pair in state.never]},
            "failed": dict(Counter(check for tried in state.tried for check in tried.failed)),
            "undecided": [{"check": check, "why": why, "schedules": count, "also_without_faults": healthy}
                          for check, why, count, healthy in undecided(state)],
            "found": {check: {"first": tried.number, "file": str(path), "evidence": list(tried.evidence)}
                      for check, (tried, path) in state.found.items()}}


def show(state: Exploration, console: Console) -> None:
    """The protocol states that faults met, as a table, and what broke."""
    console.print(_states(state))
    hit = len(set(state.hit) & state.possible)
    rows = len(set(state.in_a_row) & state.possible_in_a_row)
    console.print(f"{len(state.tried)} schedules, {sum(len(tried.faults) for tried in state.tried)} faults; "
                  f"{hit} of {len(state.possible)} fault x state pairs, {rows} of {len(state.possible_in_a_row)} of "
                  f"faults in a row, {len(state.traces)} transitions")
    if state.taken_over:
        console.print(f"{min(state.taken_over, len(state.tried))} of them were there already, from before")
    console.print(f"{len(state.tried)} run, {state.decided} decided")
    for check, why, count, healthy in undecided(state)[:_MOST_REASONS]:
        also = "; without any fault, too" if healthy else ""
        console.print(f"  {count:4} inconclusive {check}: {why}{also}", markup=False, highlight=False)
    failed = Counter(check for tried in state.tried for check in tried.failed)
    for check, (tried, path) in state.found.items():
        console.print(Text(f"✗ {check}: {failed[check]} times, first in schedule {tried.number}", "bold red"))
        for line in tried.evidence[:2]:
            console.print(f"  {line}", markup=False, highlight=False)
        console.print(f"  smallest schedule: {path}", markup=False, highlight=False, soft_wrap=True)
        console.print(f"  repeat it: diloco-chaos run {path} --on {state.on}", markup=False, highlight=False,
                      soft_wrap=True)
    if state.exit_code == 3:
        console.print("[yellow]?[/] too few were decided to say that nothing broke; name other kinds with --faults")
    elif not state.found:
        console.print("[green]✓[/] nothing broke where it was decided")


def undecided(state: Exploration) -> list[tuple[str, str, int, bool]]:
    """(check, why, in how many schedules, whether in the run without any fault, too), the most frequent first. Reasons
    count as one that differ in names and numbers alone; the first is told."""
    count: Counter[tuple[str, str]] = Counter()
    first: dict[tuple[str, str], str] = {}
    for tried in state.tried:
        for check, why in tried.undecided:
            key = check, _NAMES_AND_NUMBERS.sub("#", why)
            first.setdefault(key, why)
            count[key] += 1
    healthy = {check for check, _ in state.healthy.undecided} if state.healthy else set()
    return [(check, first[check, key], many, check in healthy) for (check, key), many in count.most_common()]


def _states(state: Exploration) -> Table:
    """Kinds in rows, what the target was doing in columns: how often each was hit."""
    table = Table(title="Protocol states that faults met: a learner's (train to boot), the syncer's (idle to boot)",
                  box=None,
                  pad_edge=False, title_justify="left")
    table.add_column("fault", no_wrap=True)
    columns = [("train", "learner training"), ("answ", "learner answered"), ("upl", "learner uploading"),
               ("cut", "learner disconnected"), ("boot", "learner starting"), ("idle", "syncer idle"),
               ("coll", "syncer collecting"), ("grace", "syncer grace"), ("save", "syncer saving"),
               ("comm", "syncer committed"), ("new", "syncer greeting"), ("back", "syncer resumed"),
               ("boot", "syncer starting")]
    shown = [(head, where) for head, where in columns if any(pair[1] == where for pair in state.possible)]
    for head, _ in shown:
        table.add_column(head, justify="right", no_wrap=True)
    for kind in sorted({kind for kind, _ in state.possible}):
        cells = []
        for _, where in shown:
            count = state.hit[kind, where]
            cells.append(Text(str(count)) if count else Text("0" if (kind, where) in state.possible else "",
                                                             "bold yellow"))
        table.add_row(kind, *cells)
    return table
