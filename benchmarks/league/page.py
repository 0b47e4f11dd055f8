"""The page: the chart, who is in the league, and a table for each fault."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from benchmarks.league.cells import Cell, cells
from benchmarks.league.contestants import CONTESTANTS
from benchmarks.league.faults import FAULTS
from benchmarks.league.performing import RUNS, Run

NOT_RUN = "not run yet"
Kept = Mapping[str, Sequence[Run]]
"""Key of a cell -> its runs."""


class Row(NamedTuple):
    """A row of a fault's table."""

    trainer: str
    settings: str
    noticed: str
    stall: str
    recovered: str
    lost: str
    verdict: str
    again: str


def page(kept: Kept) -> str:
    """Return docs/league.md."""
    runs = [run for mine in kept.values() for run in mine]
    to_run = [cell for cell in cells() if cell.absent is None]
    return _rendered(
        "league.md.j2", contestants=CONTESTANTS, faults=FAULTS, rows=_by_fault(kept), runs=RUNS,
        cells=len(to_run), done=sum(len(kept.get(cell.key, ())) >= RUNS for cell in to_run),
        when=_span([run.when[:10] for run in runs]), machines=sorted({run.machine for run in runs}),
        versions={contestant.name: _versions(contestant.name, kept) for contestant in CONTESTANTS})


def row(cell: Cell, runs: Sequence[Run]) -> Row:
    """Return a cell as a row of its fault's table."""
    who = cell.contestant.title, cell.variant
    if cell.absent is not None:
        return Row(*who, "", "", "", "", cell.absent.words, "")
    again = f"`make league ONLY={cell.key}`"
    if not runs:
        return Row(*who, "", "", "", "", NOT_RUN, again)
    return Row(*who, _figures([run.noticed for run in runs], "not told"), _figures([run.stall for run in runs], "-"),
               ", ".join(f"{run.recovered:g}" if run.recovered is not None else f"not in {run.watched:.0f}"
                         for run in runs) + " s",
               _figures([run.lost for run in runs], "not told"), _verdicts(runs), again)


def rendered_svg(name: str, **what: object) -> str:
    """Return a drawing of one of our templates."""
    return _rendered(name, **what)


def _by_fault(kept: Kept) -> dict[str, list[Row]]:
    rows: dict[str, list[Row]] = {}
    for cell in cells():
        mine = rows.setdefault(cell.fault.name, [])
        made = row(cell, kept.get(cell.key, ()))
        if cell.absent is not None and any(made.trainer == other.trainer for other in mine):
            continue  # it applies in no variant: one row says so
        mine.append(made._replace(settings="") if cell.absent is not None else made)
    return rows


def _figures(values: Sequence[float | None], missing: str) -> str:
    if all(value is None for value in values):
        return missing
    return ", ".join(missing if value is None else f"{value:g}" for value in values) + " s"


def _verdicts(runs: Sequence[Run]) -> str:
    outcomes = Counter(run.verdict.lower() for run in runs)
    failed = Counter(name for run in runs for name in run.failed)
    words = ", ".join(f"{count} {verdict}" for verdict, count in outcomes.items())
    return words + (": " if failed else "") + ", ".join(f"{name} ({count})" for name, count in failed.most_common())


def _span(days: Sequence[str]) -> str:
    if not days:
        return ""
    first, last = min(days), max(days)
    return first if first == last else f"{first} to {last}"


def _versions(contestant: str, kept: Kept) -> str:
    found = {f"{name} {number}" for key, runs in kept.items() if key.partition("/")[0] == contestant
             for run in runs for name, number in run.versions.items()}
    return ", ".join(sorted(found))


def _rendered(name: str, **what: object) -> str:
    environment = Environment(loader=FileSystemLoader(Path(__file__).parent), undefined=StrictUndefined,
                              keep_trailing_newline=True, trim_blocks=True, lstrip_blocks=True,
                              autoescape=name.endswith(".svg.j2"))
    text = environment.get_template(name).render(**what)
    return "\n".join(line.rstrip() for line in text.split("\n"))
