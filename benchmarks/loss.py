"""What faults, overlap, compression and merging cost in loss: whole trainings under virtual time, on the real model,
paired by seed; and one of each in real time that confirms them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from statistics import mean, stdev
from typing import Any

from benchmarks.training import ended
from chaos.checks.outcome import relative_gap
from chaos.history import History
from chaos.plan import Plan, freeze
from chaos.references import Point, synchronous
from chaos.run import Result
from chaos.scenario import Scenario, load
from chaos.simulate import initial_values, performed, simulate

_WORKERS = 2
_BASELINE_SEEDS = 2
"""Seeds with which the baseline is trained at half and at twice its learning rate, too."""
_STUDENT_T = dict(enumerate((12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
                             2.145, 2.131, 2.120, 2.110, 2.101, 2.093), start=2))
"""Two-sided 95% quantiles of Student's t for n samples; for more than these a little too much is taken."""
_SMALL = ("int4", "int4_with_error_feedback")
"""Costs so small that it takes all pairs to tell them from chance."""
_MARGINS = ("twin_against_itself", "tau_against_synchronous")
Figures = dict[str, float]


def measure(perform: Callable[[Plan], Result], seeds: int, pairs: int, say: Callable[[str], None]) -> dict[str, Any]:
    """Gaps to the twin and to the synchronous run, and the margins of a single run's check.

    `perform(plan)` runs one in real time; `seeds` of the `pairs` are run with faults and without overlap, too.
    """
    with ProcessPoolExecutor(_WORKERS) as pool:
        found = []
        for seed, figures in enumerate(pool.map(partial(_of_seed, seeds=seeds), range(pairs))):
            say(f"  loss, seed {seed}: {({name: round(value, 4) for name, value in figures.items()})}")
            found.append(figures)
    names = sorted({name for figures in found for name in figures})
    values = {name: [figures[name] for figures in found if name in figures] for name in names}
    return {"simulated": {name: interval(of) for name, of in values.items()},
            "margins_mean_plus_3_sd": {name: round(mean(values[name]) + 3 * stdev(values[name]), 4)
                                       for name in _MARGINS if len(values[name]) >= 10},
            "in_real_time_seed_0": _confirmed(perform, found[0])}


def _of_seed(seed: int, seeds: int) -> Figures:
    quiet_plan = freeze(load("no-fault")[0], seed)
    quiet = ended(simulate(quiet_plan)).history
    baseline = quiet.references["synchronous"].curve[-1].loss
    twin = quiet.references["twin"].curve
    figures = {"final": quiet.final.loss, "baseline": baseline,
               "twin_against_itself": _gap(quiet, "twin", "merged"),
               "tau_against_synchronous": _gap(quiet, "synchronous", "processed"),
               "tau_of_gain": _of_gain(quiet)}
    for name, plan in _costly(quiet_plan).items():
        if seed < seeds or name in _SMALL:
            figures[f"{name}_against_twin"] = relative_gap(ended(simulate(plan)).history.final, twin, "merged")
    if seed < _BASELINE_SEEDS:
        for factor in (0.5, 2.0):
            other = with_cluster(quiet_plan, synchronous_lr=quiet_plan.cluster.synchronous_lr * factor)
            figures[f"baseline_at_{factor:g}_of_its_rate"] = ended(performed(synchronous(other))).curve()[-1].loss
    if seed < seeds:
        broken = ended(simulate(freeze(load("flagship")[0], seed))).history
        blocking = ended(simulate(with_cluster(quiet_plan, overlap=0.0, quorum=4))).history
        figures |= {"faults_against_twin": _gap(broken, "twin", "merged"),
                    "faults_against_synchronous": _gap(broken, "synchronous", "processed"),
                    "faults_of_gain": _of_gain(broken),
                    "tau0_against_synchronous": _gap(blocking, "synchronous", "processed"),
                    "tau0_of_gain": _of_gain(blocking)} | _scavenged(seed, twin)
    return figures


def _costly(plan: Plan) -> dict[str, Plan]:
    """What else may cost something, with the quiet run's own settings, so that it has the same twin."""
    storm = freeze(load("storm")[0], plan.seed)
    return {"storm": with_cluster(plan).model_copy(update={"faults": storm.faults, "deadline": 2 * plan.deadline}),
            "heterogeneous": with_cluster(plan, speeds=[1, 1, 0.82, 0.82], variance=0.1),
            "int4": with_cluster(plan, gradients="int4", broadcasts="int4"),
            "int4_with_error_feedback": with_cluster(plan, gradients="int4", broadcasts="int4", error_feedback=True)}


def _scavenged(seed: int, four: Sequence[Point]) -> Figures:
    """Against as many learners all the time as there were on average, from the same warm start, and against as many as
    were left at the end, from their own; the tokens are the same."""
    six = _by(6, seed)
    warm = initial_values(six)
    final = ended(performed(scavenging(seed), initial=warm)).curve()[-1]
    return {"scavenging_against_six": relative_gap(final, ended(performed(six, initial=warm)).curve(), "merged"),
            "scavenging_against_four": relative_gap(final, four, "merged")}


def scavenging(seed: int) -> Plan:
    """Four learners, eight for twice as long, and four again: six on average."""
    guests = [f"learner-{index}" for index in range(5, 9)]
    return _by(8, seed, [{"join": guests, "at": "10s"}, {"terminate": guests, "at": "30s"}])


def _by(learners: int, seed: int, faults: Sequence[dict[str, Any]] = ()) -> Plan:
    """The quiet run by so many learners; each takes its share of the steps."""
    document = load("no-fault")[0].model_dump(mode="json", by_alias=True)
    cluster = document["cluster"]
    steps = {name: round(cluster[name] * cluster["learners"] / learners) for name in ("budget", "warm_start", "warmup")}
    document["cluster"] |= {"learners": learners} | steps
    document["checks"]["loss_parity"]["against_twin"] = None
    return freeze(Scenario.model_validate(document | {"faults": list(faults)}), seed)


def _confirmed(perform: Callable[[Plan], Result], simulated: Figures) -> dict[str, float]:
    """The same in real time, of one seed."""
    def real(plan: Plan) -> History:
        return ended(perform(plan)).history

    plan = freeze(load("no-fault")[0], 0)
    quiet = real(plan)
    found = {"final": quiet.final.loss, "final_against_simulated": quiet.final.loss / simulated["final"] - 1,
             "tau_against_synchronous": _gap(quiet, "synchronous", "processed"),
             "tau0_against_synchronous": _gap(real(with_cluster(plan, overlap=0.0, quorum=4)), "synchronous",
                                              "processed")}
    twin = quiet.references["twin"].curve
    for name, other in _costly(plan).items():
        found[f"{name}_against_twin"] = relative_gap(real(other).final, twin, "merged")
    guests = scavenging(0)  # against itself: it begins from a warm start of its own, not from that of six
    found["scavenging_against_simulated"] = relative_gap(real(guests).final, ended(performed(guests)).curve(), "merged")
    return {name: round(value, 5) for name, value in found.items()}


def _gap(history: History, kind: str, count: str) -> float:
    """The final loss' relative gap to a reference, at as many tokens processed or merged."""
    return relative_gap(history.final, history.references[kind].curve, count)


def _of_gain(history: History) -> float:
    """The gap as a share of what the synchronous run gained after the shared warm start."""
    curve = history.references["synchronous"].curve
    return (history.final.loss - curve[-1].loss) / (curve[0].loss - curve[-1].loss)


def with_cluster(plan: Plan, **changes: Any) -> Plan:
    """The plan with other cluster settings, held against the synchronous run alone."""
    document = plan.model_dump(mode="json", by_alias=True)
    document["cluster"] |= changes
    document["checks"]["loss_parity"]["against_twin"] = None
    return Plan.model_validate(document)


def interval(values: list[float]) -> dict[str, Any]:
    """Mean with its 95% interval."""
    count = len(values)
    if count < 2:
        return {"n": count, "mean": values[0] if values else None}
    half = _STUDENT_T[min(count, max(_STUDENT_T))] * stdev(values) / math.sqrt(count)
    return {"n": count, "mean": round(mean(values), 5), "low": round(mean(values) - half, 5),
            "high": round(mean(values) + half, 5), "sd": round(stdev(values), 5),
            "values": [round(value, 5) for value in values]}
