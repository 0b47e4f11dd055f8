"""Every figure that the documentation states: `make bench`, or `python -m benchmarks.bench --only recovery,links`.

JSON on standard output, progress on standard error. Run it on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import mean, median, stdev
from typing import Any

from benchmarks import containers, fidelity, links, overhead, recovery, simulated
from chaos.checks.outcome import relative_gap
from chaos.custody import custody
from chaos.history import History
from chaos.live import Silence
from chaos.plan import Plan, freeze
from chaos.references import NoReferenceError
from chaos.run import Result, run_plan
from chaos.scenario import load, parse

STUDENT_T = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 8: 2.365, 10: 2.262, 12: 2.201}
"""Two-sided 95% quantiles of Student's t for n samples."""

BASELINE_SEEDS = 2
"""Seeds with which the baseline is trained at half and at twice its learning rate, too."""

KILLS = """diloco_chaos: 1
name: bench-kill
deadline: 120s
cluster: {{quorum: {quorum}, budget: 420 steps, step_time: 60ms}}
faults:
  - {{kill: learner-1, at: 4s, restart_after: 1s}}
  - {{kill: learner-2, at: 11s, restart_after: 1s}}
  - {{kill: learner-3, at: 18s, restart_after: 1s}}
"""


def say(text: str) -> None:
    """Progress for a person."""
    print(text, file=sys.stderr, flush=True)


def perform(plan: Plan, runs: Path) -> Result:
    """Run a plan; a run that proves nothing is said to be so and left out by the caller."""
    result = run_plan(plan, runs, Silence())
    code = result.judgement.exit_code
    say(f"  {plan.scenario} seed {plan.seed}: exit {code} {result.judgement.inconclusive}"
        + "".join(f"\n    {v.name} {v.verdict}: {v.measured} {v.evidence[:1]}" for v in result.judgement.checks
                  if v.verdict != "passed"))
    return result


def interval(values: list[float]) -> dict[str, Any]:
    """Mean with its 95% interval."""
    count = len(values)
    if count < 2:
        return {"n": count, "mean": values[0] if values else None}
    half = STUDENT_T.get(count, 1.96) * stdev(values) / math.sqrt(count)
    return {"n": count, "mean": round(mean(values), 5), "low": round(mean(values) - half, 5),
            "high": round(mean(values) + half, 5), "sd": round(stdev(values), 5),
            "values": [round(value, 5) for value in values]}


def kills(runs: Path, repeats: int) -> dict[str, Any]:
    """Longest gap between merges while a learner is dead, and how long a replacement takes; K = 1 and K = 3."""
    found: dict[str, Any] = {}
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
            starts += reintegrations(history)
        p99 = sorted(fault_free)[int(0.99 * (len(fault_free) - 1))]
        found[f"quorum_{quorum}"] = {"longest_gap_s": round(max(gaps), 4), "kills": len(gaps),
                                     "fault_free_p99_gap_s": round(p99, 4), "ratio": round(max(gaps) / p99, 2)}
    found["spawn_to_first_merge_s"] = {"median": round(median(starts), 2), "max": round(max(starts), 2),
                                       "n": len(starts), "imports": "included", "survivors": "at their pace"}
    return found


def reintegrations(history: History) -> list[float]:
    """Spawn of each replacement to the first merge with its contribution."""
    took = []
    for spawn in history.tape.of("spawn", node="harness"):
        if spawn["incarnation"]:
            took += [merge.t - spawn.t for merge in history.merges if merge.t > spawn.t and any(
                part["learner"] == spawn["target"] and part["incarnation"] == spawn["incarnation"]
                for part in merge["contributions"])][:1]
    return took


def loss(runs: Path, seeds: int, pairs: int) -> dict[str, Any]:
    """Loss against the twin and the synchronous run, paired by seed; the margins of a single run's check."""
    names = ("faults_against_twin", "faults_against_synchronous", "tau_against_synchronous", "tau0_against_synchronous",
             "twin_against_itself", "faults_of_gain", "tau_of_gain", "tau0_of_gain")
    gaps: dict[str, list[float]] = {name: [] for name in names}
    baseline: dict[str, list[float]] = {}
    for seed in range(pairs):
        say(f"loss, seed {seed}")
        quiet = perform(freeze(load("no-fault")[0], seed), runs)
        compare(quiet, gaps, "twin", "twin_against_itself", "merged")
        compare(quiet, gaps, "synchronous", "tau_against_synchronous", "processed", "tau_of_gain")
        curve = quiet.history.references["synchronous"].curve
        baseline.setdefault(f"{quiet.history.plan.cluster.synchronous_lr:g}", []).append(curve[-1].loss)
        if seed >= seeds:
            continue
        broken = perform(freeze(load("flagship")[0], seed), runs)
        compare(broken, gaps, "twin", "faults_against_twin", "merged")
        compare(broken, gaps, "synchronous", "faults_against_synchronous", "processed", "faults_of_gain")
        blocking = perform(with_cluster(freeze(load("no-fault")[0], seed), overlap=0.0, quorum=4), runs)
        compare(blocking, gaps, "synchronous", "tau0_against_synchronous", "processed", "tau0_of_gain")
        for factor in (0.5, 2.0) if seed < BASELINE_SEEDS else ():
            rate = quiet.history.plan.cluster.synchronous_lr * factor
            other = synchronous_only(quiet.history.plan, rate, runs)
            baseline.setdefault(f"{rate:g}", []).append(other)
    margins = {name: round(mean(values) + 3 * stdev(values), 4) for name, values in gaps.items()
               if len(values) >= 10 and name in ("twin_against_itself", "tau_against_synchronous")}
    return {"gaps": {name: interval(values) for name, values in gaps.items()},
            "baseline_loss_by_learning_rate": {rate: interval(values) for rate, values in baseline.items()},
            "margins_mean_plus_3_sd": margins}


def compare(result: Result, gaps: dict[str, list[float]], kind: str, name: str, count: str, of_gain: str = "") -> None:
    """Note the final loss' relative gap to a reference, and its share of what the reference gained."""
    if not result.history.curve or kind not in result.history.references:
        return
    final = max(result.history.curve, key=lambda point: point.number)
    curve = result.history.references[kind].curve
    gaps[name].append(relative_gap(final, curve, count))
    if of_gain:
        gaps[of_gain].append((final.loss - curve[-1].loss) / (curve[0].loss - curve[-1].loss))


def with_cluster(plan: Plan, **changes: Any) -> Plan:
    """The plan with other cluster settings, held against the synchronous run alone."""
    document = plan.model_dump(mode="json", by_alias=True)
    document["cluster"] |= changes
    document["checks"]["loss_parity"]["against_twin"] = None
    return Plan.model_validate(document)


def synchronous_only(plan: Plan, rate: float, runs: Path) -> float:
    """Final loss of the synchronous run at another learning rate."""
    from chaos.folder import cache_folder
    from chaos.places import local
    from chaos.references import References
    from harness.trainer.data import materialize, needed_bytes
    file, digest = materialize(plan.cluster.corpus, cache_folder() / "corpora", needed_bytes(plan.cluster.spec.context))
    other = plan.model_copy(update={"cluster": plan.cluster.model_copy(update={"synchronous_lr": rate})})
    with custody() as ledger:
        references = References(cache_folder(), file, digest, local().stage, ledger)
        return references.obtain("synchronous", other, lambda *_: Silence()).curve[-1].loss


def main() -> None:
    """Measure what is asked for and print it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="kill,recovery,links,containers,overhead,simulated,fidelity,loss")
    parser.add_argument("--seeds", type=int, default=5, help="with faults, and at overlap 0")
    parser.add_argument("--pairs", type=int, default=10, help="fault-free pairs")
    parser.add_argument("--repeats", type=int, default=3, help="runs of three kills, per quorum")
    parser.add_argument("--kills", type=int, default=30, help="kills whose recovery is timed")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="diloco-chaos-bench-") as folder:
        runs = Path(folder)
        parts: dict[str, Callable[[], dict[str, Any]]] = {
            "kill": lambda: kills(runs, options.repeats), "links": lambda: links.measure(say),
            "recovery": lambda: recovery.measure(lambda plan: perform(plan, runs), options.kills),
            "containers": lambda: containers.measure(runs, options.kills, say),
            "fidelity": lambda: fidelity.measure(runs, Silence(), say),
            "simulated": lambda: simulated.measure(say),
            "overhead": lambda: overhead.measure(runs, say),
            "loss": lambda: loss(runs, options.seeds, options.pairs)}
        found = {}
        for name in options.only.split(","):
            try:
                found[name] = parts[name]()
            except NoReferenceError as error:
                found[name] = {"error": str(error)}
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
