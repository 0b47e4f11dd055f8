"""What `compare` says of simulated pairs of runs: how often its intervals hold a true difference, and how often it
calls one where there is none."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any

from diloco_chaos.chaos.evidence.run_folder import RunFolder
from diloco_chaos.chaos.report.comparison.measured import RunMeasured, measured, way_of
from diloco_chaos.chaos.report.comparison.model import Pairing, Row, paired
from diloco_chaos.chaos.runner.run import Result
from diloco_chaos.chaos.runner.simulate import simulate
from diloco_chaos.chaos.scenario.loading import parse
from diloco_chaos.chaos.scenario.plan import Plan, freeze

BAR = 0.95
COMPARISONS, RUNS = 200, 5
SCENARIO = """diloco_chaos: 1
name: bench-compare
deadline: 60s
cluster: {{model: quadratic, learners: 3, quorum: {quorum}, budget: 120 steps, step_time: 60ms}}
faults: [{{kill: learner-1, at: 2s, restart_after: 1s}}]
"""


def measure(pairs: int, say: Callable[[str], None]) -> dict[str, Any]:
    """So many pairs are simulated, and comparisons of five drawn from them. The true difference is the mean over all
    pairs; where there is none, both ways are runs of the same one."""
    ways = [[_run(quorum, seed) for seed in range(pairs)] for quorum in (3, 1)]
    plan = _plan(3, 0)
    true = _means(_pairing(plan, *ways))
    held: dict[str, list[bool]] = {}
    for draw in range(COMPARISONS):
        drawn = Random(draw).sample(range(pairs), RUNS)
        for row in _pairing(plan, *([way[index] for index in drawn] for way in ways)).rows:
            told = row.difference.estimate
            if row.name in true and told and told.low is not None and told.high is not None:
                held.setdefault(row.name, []).append(told.low <= true[row.name] <= told.high)
    quiet = [not _pairing(plan, *_halves(ways[draw % 2], draw)).called("better", "worse")
             for draw in range(COMPARISONS)]
    covered = {name: round(fmean(values), 3) for name, values in held.items()}
    everywhere = fmean(value for values in held.values() for value in values)
    say(f"  compare: {everywhere:.1%} of intervals hold the true difference, {fmean(quiet):.1%} of comparisons without "
        f"one call none")
    return {"pairs": pairs, "comparisons": COMPARISONS, "runs_of_each": RUNS, "bar": BAR, "true": true,
            "covered": covered, "covered_in_all": round(everywhere, 4), "quiet": round(fmean(quiet), 4),
            "met": everywhere >= BAR and fmean(quiet) >= BAR}


def _plan(quorum: int, seed: int) -> Plan:
    return freeze(parse(SCENARIO.format(quorum=quorum)), seed)


def _run(quorum: int, seed: int) -> RunMeasured:
    done = simulate(_plan(quorum, seed))
    return measured(Result(RunFolder(Path(f"quorum-{quorum}-{seed}")), done.history, done.judgement, done.outcome))


def _pairing(plan: Plan, first: Sequence[RunMeasured], second: Sequence[RunMeasured]) -> Pairing:
    return paired([way_of("first", plan, first), way_of("second", plan, second)])[0]


def _halves(runs: Sequence[RunMeasured], draw: int) -> list[list[RunMeasured]]:
    """Two ways that are one: runs of different seeds, which stand for pairs."""
    drawn = Random(draw).sample(runs, 2 * RUNS)
    return [[run.model_copy(update={"seed": number}) for number, run in enumerate(half)]
            for half in (drawn[:RUNS], drawn[RUNS:])]


def _means(pairing: Pairing) -> Mapping[str, float]:
    """Return what the second way has more, of all figures but rates."""
    def mean(row: Row) -> float | None:
        return row.difference.estimate.mean if row.difference.estimate and row.unit != "rate" else None
    return {row.name: round(value, 6) for row in pairing.rows if (value := mean(row)) is not None}
