"""Plants each bug of `bugs.py` into `trainer.py`, and explores it until something fails: `python -m
benchmarks.searching`.

Guided, and with --unguided by chance alone from the same faults and moments. A line of JSON for each search on standard
output: how many runs it took to find and to shrink, and what was found. Progress on standard error.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.searching.bugs import BUGS, plant
from diloco_chaos.chaos.exploration.commands.attempt import COMMANDS
from diloco_chaos.chaos.exploration.commands.hunt import Hunt, HuntState
from diloco_chaos.chaos.exploration.explore import Search
from diloco_chaos.chaos.scenario.loading import load
from diloco_chaos.harness.base.workers import workers_for

_MOST_FAULTS = 3


def searched(bug: str, seed: int, most: int, jobs: int, *, guided: bool) -> dict[str, object]:
    """Return what a search finds in the trainer with this bug, and how soon."""
    began, workers = time.monotonic(), workers_for(COMMANDS, jobs)
    try:
        with tempfile.TemporaryDirectory() as folder:
            scenario = load(str(plant(bug, Path(folder))))[0]
            hunt = Hunt(Search(scenario, seed, _MOST_FAULTS, None, guided, on="local", runs=f"{folder}/runs"),
                        Path(folder) / "explored", workers, at_once=jobs, tell=_tell)
            hunt.run(most, lambda state: bool(state.found))
    finally:
        workers.close()
    state = hunt.state
    found = state.found[0] if state.found else None
    return {"bug": bug or "none", "seed": seed, "guided": guided, "schedules": len(state.tried), "runs": state.runs,
            "seconds": round(time.monotonic() - began), "decided": state.decided, "flakes": len(state.flakes),
            "checks": found.checks if found else [], "faults": found.faults if found else [],
            "failed": f"{found.failed} of {found.of}" if found else ""}


def _tell(state: HuntState) -> None:
    last = state.tried[-1]
    print(f"{state.runs} runs: {list(last.faults)} {last.failed}", file=sys.stderr, flush=True)


def main() -> int:
    """The command line; see the module."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--only", default="", help="bugs that have this in their name; none: the trainer as it is")
    parser.add_argument("--seeds", type=int, default=3, help="searches of each bug")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--most", type=int, default=400, help="schedules of a search, at the most")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--unguided", action="store_true", help="chance alone")
    given = parser.parse_args()
    for bug in [""] if given.only == "none" else [bug for bug in BUGS if given.only in bug]:
        for seed in range(given.first_seed, given.first_seed + given.seeds):
            print(json.dumps(searched(bug, seed, given.most, given.jobs, guided=not given.unguided)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
