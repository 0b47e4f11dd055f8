"""What faults, overlap, compression and merging cost in loss: whole trainings under virtual time, on the real model,
paired by seed; and one of each in real time that confirms them.

The settings are those of scenario `no-fault` but for the length: half as many steps again, a quarter of them shared.
"""

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
_STUDENT_T = dict(enumerate((12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
                             2.145, 2.131, 2.120, 2.110, 2.101, 2.093), start=2))
"""Two-sided 95% quantiles of Student's t for n samples; for more than these a little too much is taken."""
_SMALL = "int4"
"""A cost so small that it takes all pairs to tell it from chance."""
LENGTH = {"budget": 1200, "warm_start": 300, "warmup": 180}
"""Steps: as in the sweep."""
_LATE = 360
"""A warm-up beyond the warm start, which is the best that was found for the synchronous run."""
_STORM_S = 24.0
"""Of about 90: as large a share as in scenario `storm`."""
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
        short = list(pool.map(_of_the_scenario, range(pairs)))
    names = sorted({name for figures in found for name in figures})
    values = {name: [figures[name] for figures in found if name in figures] for name in names}
    return {"simulated": {name: interval(of) for name, of in values.items()},
            "no_fault_against_synchronous": interval(short),
            "margin_mean_plus_3_sd": round(mean(short) + 3 * stdev(short), 4),
            "in_real_time_seed_0": _confirmed(perform, found[0])}


def _of_seed(seed: int, seeds: int) -> Figures:
    quiet_plan = _long(freeze(load("no-fault")[0], seed))
    quiet = ended(simulate(quiet_plan)).history
    baseline = quiet.references["synchronous"].curve[-1].loss
    twin = quiet.curve  # under virtual time the fault-free run is its own twin
    figures = {"final": quiet.final.loss, "baseline": baseline,
               "tau_against_synchronous": _gap(quiet, "synchronous", "processed"),
               "tau_of_gain": _of_gain(quiet)}
    for name, plan in _costly(quiet_plan).items():
        if seed < seeds or name == _SMALL:
            figures[f"{name}_against_twin"] = relative_gap(ended(simulate(plan)).history.final, twin, "merged")
    if seed < seeds:
        broken = ended(simulate(_long(freeze(load("flagship")[0], seed)))).history
        blocking = ended(simulate(with_cluster(quiet_plan, overlap=0.0, quorum=4))).history
        late = ended(performed(synchronous(with_cluster(quiet_plan, warmup=_LATE)))).curve()[-1].loss
        figures |= {"faults_against_twin": relative_gap(broken.final, twin, "merged"),
                    "faults_against_synchronous": _gap(broken, "synchronous", "processed"),
                    "faults_of_gain": _of_gain(broken),
                    "tau0_against_synchronous": _gap(blocking, "synchronous", "processed"),
                    "tau0_of_gain": _of_gain(blocking),
                    "baseline_of_late_peak": late,
                    "tau_against_late_peak": quiet.final.loss / late - 1,
                    "tau0_against_late_peak": blocking.final.loss / late - 1} | _scavenged(seed, twin)
    return figures


def _of_the_scenario(seed: int) -> float:
    """The gap of `no-fault` as it is, to the synchronous run."""
    plan = with_cluster(freeze(load("no-fault")[0], seed))
    return _gap(ended(simulate(plan)).history, "synchronous", "processed")


def _long(plan: Plan) -> Plan:
    """The same with as many steps as losses are stated for."""
    return with_cluster(plan, **LENGTH).model_copy(update={"deadline": 2 * plan.deadline})


def _costly(plan: Plan) -> dict[str, Plan]:
    """What else may cost something, with the quiet run's own settings, so that it has the same twin."""
    scenario = load("storm")[0]
    lasting = tuple(fault.model_copy(update={"duration": _STORM_S}) for fault in scenario.faults)
    storm = freeze(scenario.model_copy(update={"faults": lasting}), plan.seed)
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
    return _by(8, seed, [{"join": guests, "at": "15s"}, {"terminate": guests, "at": "45s"}])


def _by(learners: int, seed: int, faults: Sequence[dict[str, Any]] = ()) -> Plan:
    """The quiet run by so many learners; each takes its share of the steps."""
    document = load("no-fault")[0].model_dump(mode="json", by_alias=True)
    fewer = document["cluster"]["learners"] / learners
    document["cluster"] |= {"learners": learners} | {name: round(steps * fewer) for name, steps in LENGTH.items()}
    document["deadline"] = "240s"
    document["checks"]["loss_parity"]["against_twin"] = None
    return freeze(Scenario.model_validate(document | {"faults": list(faults)}), seed)


def _confirmed(perform: Callable[[Plan], Result], simulated: Figures) -> dict[str, float]:
    """The same in real time, of one seed."""
    def real(plan: Plan) -> History:
        return ended(perform(plan)).history

    plan = _long(freeze(load("no-fault")[0], 0))
    quiet = real(plan)
    twin = quiet.curve
    found = {"final": quiet.final.loss, "final_against_simulated": quiet.final.loss / simulated["final"] - 1,
             "tau_against_synchronous": _gap(quiet, "synchronous", "processed"),
             "tau0_against_synchronous": _gap(real(with_cluster(plan, overlap=0.0, quorum=4)), "synchronous",
                                              "processed")}
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
