"""The figures of docs/figures.md: `make bench`, or `python -m benchmarks.bench --only recovery,links`.

JSON on standard output, progress on standard error. Run it on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.measure import (
    comparing,
    containers,
    fidelity,
    fleet,
    foreign,
    leader,
    links,
    loss,
    merging,
    overhead,
    phases,
    preload,
    recovery,
    reports,
    rivals,
    scratch,
    simulated,
    start,
    tests,
    wire,
)
from diloco_chaos.chaos.report.live import NullAudience
from diloco_chaos.chaos.runner.run import Result, run_plan
from diloco_chaos.chaos.scenario.loading import parse
from diloco_chaos.chaos.scenario.plan import Plan, freeze

KILLS = """diloco_chaos: 1
name: bench-kill
deadline: 120s
cluster: {{quorum: {quorum}, budget: 420 steps, step_time: 60ms}}
faults:
  - {{kill: learner-1, at: 4s, restart_after: 1s}}
  - {{kill: learner-2, at: 11s, restart_after: 1s}}
  - {{kill: learner-3, at: 18s, restart_after: 1s}}
"""


_FOLLOWED, _PAIRS = 30, 200
"""Simulated runs whose recoveries are followed, and pairs of them that are compared."""


def say(text: str) -> None:
    """Progress for a person."""
    print(text, file=sys.stderr, flush=True)


NOTHING_PROVED: list[str] = []
"""Runs that ended as inconclusive, and why: whatever was measured in them."""


def perform(plan: Plan, runs: Path) -> Result:
    """Run a plan. One that proves nothing is listed; what is measured in it all the same is for the reader to judge."""
    result = run_plan(plan, runs, NullAudience())
    code = result.judgement.exit_code
    if result.judgement.inconclusive:
        NOTHING_PROVED.append(f"{plan.scenario} seed {plan.seed}, {plan.digest[:8]}: {result.judgement.inconclusive}")
    say(f"  {plan.scenario} seed {plan.seed}: exit {code} {result.judgement.inconclusive}"
        + "".join(f"\n    {v.name} {v.verdict}: {v.measured} {v.evidence[:1]}" for v in result.judgement.checks
                  if v.verdict != "passed"))
    return result


def kills(runs: Path, repeats: int) -> dict[str, Any]:
    """Longest gap between merges while a learner is dead, and how long a replacement takes; K = 1 and K = 3."""
    figures: dict[str, Any] = {}
    starts: list[float] = []
    for quorum in (1, 3):
        gaps, fault_free = [], []
        for seed in range(repeats):
            result = perform(freeze(parse(KILLS.format(quorum=quorum)), seed), runs)
            if result.judgement.inconclusive or result.history.zero is None:
                continue
            history = result.history
            fault_free += history.gaps(history.zero or 0.0, history.first_fault)[1:-1]
            for span in history.spans:
                assert span.injected is not None
                gaps.append(max(history.gaps(span.injected, span.injected + 6.0)[:-1]))
            starts += recovery.reintegrations(history.tape, history.merges)
        p99 = sorted(fault_free)[int(0.99 * (len(fault_free) - 1))]
        figures[f"quorum_{quorum}"] = {"longest_gap_s": round(max(gaps), 4), "kills": len(gaps),
                                       "fault_free_p99_gap_s": round(p99, 4), "ratio": round(max(gaps) / p99, 2)}
    figures["spawn_to_first_merge_s"] = {"median": round(median(starts), 2), "max": round(max(starts), 2),
                                         "n": len(starts), "imports": "included", "survivors": "at their pace"}
    return figures


def main() -> None:
    """Measure what is asked for and print it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="kill,leader,recovery,links,containers,overhead,simulated,fidelity,rivals,"
                                          "wire,merge,scratch,foreign,fleet,start,tests,preload,"
                                          "reports,phases,compare,loss")
    parser.add_argument("--seeds", type=int, default=5, help="with faults, and at overlap 0")
    parser.add_argument("--pairs", type=int, default=10, help="fault-free pairs, and pairs of starts")
    parser.add_argument("--repeats", type=int, default=3, help="runs of three kills, per quorum")
    parser.add_argument("--kills", type=int, default=30, help="kills whose recovery is timed")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="diloco-chaos-bench-") as folder:
        runs = Path(folder)
        parts: dict[str, Callable[[], dict[str, Any]]] = {
            "kill": lambda: kills(runs, options.repeats),
            "leader": lambda: leader.measure(lambda plan: perform(plan, runs), say),
            "links": lambda: links.measure(say),
            "recovery": lambda: recovery.measure(lambda plan: perform(plan, runs), options.kills),
            "containers": lambda: containers.measure(runs, options.kills, say),
            "fidelity": lambda: fidelity.measure(runs, NullAudience(), say),
            "simulated": lambda: simulated.measure(say),
            "rivals": lambda: rivals.measure(lambda plan: perform(plan, runs), options.seeds, say),
            "preload": lambda: preload.measure(100),
            "wire": lambda: wire.measure(lambda plan: perform(plan, runs), options.seeds, say),
            "merge": lambda: merging.measure(say),
            "scratch": lambda: scratch.measure(lambda plan: perform(plan, runs), options.seeds, say),
            "foreign": lambda: foreign.measure(runs, say),
            "fleet": lambda: fleet.measure(say),
            "overhead": lambda: overhead.measure(runs, say),
            "start": lambda: start.measure(runs, options.pairs, say),
            "reports": lambda: reports.measure(say),
            "phases": lambda: phases.measure(_FOLLOWED, say),
            "compare": lambda: comparing.measure(_PAIRS, say),
            "tests": lambda: tests.measure(say),
            "loss": lambda: loss.measure(lambda plan: perform(plan, runs), options.seeds, options.pairs, say)}
        names = options.only.split(",")
        if unknown := sorted(set(names) - set(parts)):
            parser.error(f"--only: there is no {', '.join(unknown)}; choose from {', '.join(parts)}")
        figures: dict[str, Any] = {}
        for name in names:
            NOTHING_PROVED.clear()
            try:
                figures[name] = parts[name]()
            except Exception as error:  # the others were measured, or will be: an hour of work is not thrown away
                traceback.print_exc()
                figures[name] = {"error": f"{type(error).__name__}: {error}"}
            figures[name] |= {"inconclusive_runs": list(NOTHING_PROVED)} if NOTHING_PROVED else {}
            say(f"{name}: {json.dumps(figures[name])}")
    print(json.dumps(figures, indent=2))
    sys.exit(any("error" in part for part in figures.values()))


if __name__ == "__main__":
    main()
