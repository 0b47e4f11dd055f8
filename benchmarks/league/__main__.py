"""Run the league, and write docs/league.md and docs/league.svg: `make league`, or `python -m benchmarks.league`.

    --only torchrun                  a contestant
    --only torchrun/best             one of its two ways to be set up
    --only kill-worker               a fault
    --only torchrun/best/pause       one cell

A cell that has its three runs is not run again, so a league that was interrupted goes on where it was. Run it on a
machine that does nothing else: all of it takes a day.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.league.cells import Cell, cells
from benchmarks.league.chart import chart
from benchmarks.league.page import page, row
from benchmarks.league.performing import RUNS, Environments, Run, keep, kept, perform

ROOT = Path(__file__).resolve().parents[2]
RESULTS = Path("benchmarks") / "league" / "results"
PAGE, CHART = Path("docs") / "league.md", Path("docs") / "league.svg"


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Do what the options ask for, and return the exit code."""
    options = _parser().parse_args(arguments)
    results = options.results or root / RESULTS
    chosen = list(cells(options.only))
    if not chosen:
        print(f"no cell is called {options.only!r}; --list prints them", file=sys.stderr)
        return 2
    if options.list:
        print(*(f"{cell.key:45} {cell.absent.words if cell.absent else ''}".rstrip() for cell in chosen), sep="\n")
        return 0
    try:
        failures = [] if options.page else list(_run(chosen, results, Environments(options.environments), options))
        written = {PAGE: page(_all(results)), CHART: chart(_all(results))}
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    if options.results and not options.page:
        return bool(failures)  # a trial: the page is of the results that are kept here
    for path, text in written.items():
        (root / path).write_text(text)
    return bool(failures)


def _run(chosen: Sequence[Cell], results: Path, environments: Environments,
         options: argparse.Namespace) -> Iterator[str]:
    """Run what cells lack; yield those that can't be run."""
    for cell in chosen:
        runs = kept(cell, results)
        while cell.absent is None and len(runs) < options.runs:
            try:
                runs = [*runs, perform(cell, environments, options.retries)]
            except (RuntimeError, subprocess.CalledProcessError) as error:
                print(f"{cell.key} can't be run: {error}", file=sys.stderr, flush=True)
                yield cell.key
                break
            keep(cell, results, runs)
            print(cell.key, *row(cell, runs[-1:])[2:-1], sep=" | ", file=sys.stderr, flush=True)


def _all(results: Path) -> dict[str, list[Run]]:
    return {cell.key: runs for cell in cells() if cell.absent is None and (runs := kept(cell, results))}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.league", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="CELLS", help="which cells; all if not given")
    parser.add_argument("--list", action="store_true", help="print the cells, and run nothing")
    parser.add_argument("--page", action="store_true", help="write the page from what there is, and run nothing")
    parser.add_argument("--runs", type=int, default=RUNS, help=f"runs of each cell ({RUNS})")
    parser.add_argument("--retries", type=int, default=1, help="of a run that proves nothing (1)")
    parser.add_argument("--results", type=Path, help="a folder of your own for a trial: the page stays as it is")
    parser.add_argument("--environments", type=Path, default=ROOT / "build" / "league" / "environments",
                        help="where virtual environments are made")
    return parser


if __name__ == "__main__":
    sys.exit(main())
