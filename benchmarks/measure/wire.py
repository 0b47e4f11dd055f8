"""What training says over the wire: bytes for every trained token, and what a thin, long line leaves of its pace.

Data parallelism sends every gradient and every mean, as they are or as bfloat16. Decoupled DiLoCo sends every fragment
once in H steps, and here at four bits a value. The same star of links for both, every byte at the syncer's sockets
counted: frames, headers, scales, reports.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from itertools import pairwise
from statistics import mean
from typing import Any

from benchmarks.interval import interval
from diloco_chaos.chaos.evidence.history import History
from diloco_chaos.chaos.report.compare import under
from diloco_chaos.chaos.runner.run import Result
from diloco_chaos.chaos.runner.simulate import simulate
from diloco_chaos.chaos.scenario.loading import parse
from diloco_chaos.chaos.scenario.plan import Plan, freeze
from diloco_chaos.harness.record.tape.events import Merge, Traffic
from diloco_chaos.harness.trainer.algorithm.codec import bits_per_value

LEARNERS, SYNC_EVERY, STEP_S, STEPS = 4, 24, 0.05, 480
ROUND_TRIP_S, RATE = 0.1, "1MB/s"
BEGIN_S, LENGTH_S, SETTLING_S, LAST_S = 2.0, 18.0, 3.0, 1.5
"""The thin line: from when, how long, what of it is not measured because it only begins, and what is left for the last
merge, so that it comes while the line is thin: a fragment's interval is 1.2 s, a step of data parallelism as long."""
_CLUSTER = f"model: tiny, learners: {LEARNERS}, fragments: 8, sync_every: {SYNC_EVERY}, step_time: {STEP_S}s, " \
           f"budget: {STEPS} steps, snapshots: 4"
_WORKERS = 2
Run = Callable[[Plan], History]


def measure(perform: Callable[[Plan], Result], seeds: int, say: Callable[[str], None]) -> dict[str, Any]:
    """Under virtual time, and in real time once."""
    each = []
    with ProcessPoolExecutor(_WORKERS) as pool:
        for seed, figures in enumerate(pool.map(_simulated, range(seeds))):
            say(f"  wire, seed {seed}: {figures}")
            each.append(figures)
    wanted = 0.85 * 32 / bits_per_value("int4") * SYNC_EVERY
    return {"simulated": {name: interval([row[name] for row in each]) for name in each[0]},
            "bytes_ratio_wanted": round(wanted, 1), "bits_per_value": bits_per_value("int4"),
            "on_local": _of_seed(0, lambda plan: perform(plan).history)}


def _simulated(seed: int) -> dict[str, float]:
    return _of_seed(seed, lambda plan: simulate(plan).history)


def _of_seed(seed: int, run: Run) -> dict[str, float]:
    small = freeze(parse(_scenario("gradients: int4, broadcasts: int4")), seed)
    ours, its, half = run(small), run(under(small, "data_parallel")), run(_halved(under(small, "data_parallel")))
    thin = _scenario("overlap: 10", f"faults:\n  - {{latency: learners, at: {BEGIN_S}s, for: {LENGTH_S}s, "
                                   f"delay: {ROUND_TRIP_S / 2}s, rate: {RATE}}}\n")
    slowed = freeze(parse(thin), seed)
    pace = {"open": merged_per_s(run(freeze(parse(_scenario("overlap: 10")), seed))),
            "thin": merged_per_s(run(slowed)), "rival": merged_per_s(run(under(slowed, "data_parallel"))),
            "rival_halved": merged_per_s(run(_halved(under(slowed, "data_parallel"))))}
    return {"bytes_per_token": round(_per_token(ours), 4), "bytes_per_token_data_parallel": round(_per_token(its), 2),
            "bytes_per_token_data_parallel_bfloat16": round(_per_token(half), 2),
            "bytes_ratio": round(_per_token(its) / _per_token(ours), 2),
            "bytes_ratio_bfloat16": round(_per_token(half) / _per_token(ours), 2),
            "merged_every_over_h": round(merged_every(ours) / SYNC_EVERY, 4),
            "thin_over_open": round(pace["thin"] / pace["open"], 4),
            "thin_over_data_parallel": round(pace["thin"] / pace["rival"], 2),
            "thin_over_data_parallel_bfloat16": round(pace["thin"] / pace["rival_halved"], 2)}


def _halved(plan: Plan) -> Plan:
    """Data parallelism whose gradients and means travel as bfloat16."""
    ways = {"gradients": "bfloat16", "broadcasts": "bfloat16"}
    return plan.model_copy(update={"cluster": plan.cluster.model_copy(update=ways)})


def _scenario(settings: str, rest: str = "") -> str:
    return f"diloco_chaos: 1\nname: bench-wire\ndeadline: 300s\ncluster: {{{_CLUSTER}, {settings}}}\n{rest}"


def _per_token(history: History) -> float:
    """Bytes for a token once everybody has begun: from the steady state to the end."""
    first, *_, last = (event for event in history.tape.of(Traffic) if event.t >= (history.zero or 0.0))
    total = [sum(sum(way.values()) for way in (event.sent, event.received)) for event in (first, last)]
    tokens = sum(event.tokens for events in history.steps.values() for event in events
                 if first.t <= event.t < last.t)
    return float((total[1] - total[0]) / tokens)


def merged_every(history: History) -> float:
    """Steps between two merges of a fragment, on average."""
    steps: dict[int, list[int]] = defaultdict(list)
    for merge in history.merges:
        if merge.t >= (history.zero or 0.0):
            steps[merge.fragment].append(merge.step)
    return mean(after - before for each in steps.values() for before, after in pairwise(each))


def merged_per_s(history: History) -> float:
    """Tokens merged in a second, the mean over fragments weighted by size, while the line is thin, or would be.

    From a fragment's first merge in that time to its first after it, so that no fraction of an interval is lost; where
    none came any more, to the time's end.
    """
    begin = (history.zero or 0.0) + BEGIN_S + SETTLING_S
    end = begin + LENGTH_S - SETTLING_S - LAST_S
    sizes = [fragment.size for fragment in history.plan.cluster.fragment_table()]
    return sum(size * _rate([m for m in history.merges if m.fragment == index], begin, end)
               for index, size in enumerate(sizes)) / sum(sizes)


def _rate(merges: list[Merge], begin: float, end: float) -> float:
    first, *others = [merge for merge in merges if merge.t >= begin]
    counted = [merge for merge in others if merge.t < end]
    last = next((merge for merge in others if merge.t >= end), None)
    counted += [last] if last else []
    tokens = sum(part.tokens for merge in counted for part in merge.contributions)
    return float(tokens / ((last.t if last else end) - first.t))
