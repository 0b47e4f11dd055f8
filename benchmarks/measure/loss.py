"""What faults, overlap, compression and merging cost in loss: whole trainings under virtual time, on the real model,
paired by seed; and one of each in real time that confirms them.

The settings are those of scenario `no-fault` but for the length: half as many steps again, a quarter of them shared.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from statistics import mean, stdev
from typing import Any

from benchmarks.interval import interval
from benchmarks.tuning.sweep import BASE
from benchmarks.tuning.training import ended, with_cluster
from diloco_chaos.chaos.checks.outcome import extra_tokens, relative_gap
from diloco_chaos.chaos.evidence.baseline import LossPoint
from diloco_chaos.chaos.evidence.history import History
from diloco_chaos.chaos.runner.run import Result
from diloco_chaos.chaos.runner.simulate import initial_values, performed, simulate
from diloco_chaos.chaos.scenario.loading import load
from diloco_chaos.chaos.scenario.model import Scenario
from diloco_chaos.chaos.scenario.plan import Plan, freeze

_WORKERS = 2
_SMALL = "int4"
"""A cost so small that it takes all pairs to tell it from chance."""
_LENGTH = ("budget", "warm_start", "warmup")
"""Steps: as many as in the sweep."""
_LATE = 720
"""A warm-up far beyond the warm start: of all that were tried the best for the synchronous run, and for the other."""
_BLOCKING: dict[str, Any] = {"overlap": 0.0, "quorum": 4}
_OTHERS: dict[str, dict[str, Any]] = {
    "tau0": _BLOCKING, "late_peak_tau": {"warmup": _LATE}, "late_peak_tau0": _BLOCKING | {"warmup": _LATE}}
"""Other settings of the fault-free run, held against the synchronous run with the same warm-up."""
_STORM_S = 24.0
"""Of about 90: as large a share as in scenario `storm`."""
Figures = dict[str, float]


def measure(perform: Callable[[Plan], Result], seeds: int, pairs: int, say: Callable[[str], None]) -> dict[str, Any]:
    """Gaps to the fault-free baseline and to the synchronous run, and the margins of a single run's check.

    `perform(plan)` runs one in real time; `seeds` of the `pairs` are run with faults and without overlap, too.
    """
    with ProcessPoolExecutor(_WORKERS) as pool:
        by_seed = []
        for seed, figures in enumerate(pool.map(partial(_of_seed, seeds=seeds), range(pairs))):
            say(f"  loss, seed {seed}: {({name: round(value, 4) for name, value in figures.items()})}")
            by_seed.append(figures)
        short = list(pool.map(_of_the_scenario, range(pairs)))
    names = sorted({name for figures in by_seed for name in figures})
    values = {name: [figures[name] for figures in by_seed if name in figures] for name in names}
    return {"simulated": {name: interval(of) for name, of in values.items()},
            "no_fault_against_synchronous": interval(short),
            "margin_mean_plus_3_sd": round(mean(short) + 3 * stdev(short), 4),
            "in_real_time_seed_0": _confirmed(perform, by_seed[0])}


def _of_seed(seed: int, seeds: int) -> Figures:
    quiet_plan = _quiet(seed)
    quiet = ended(simulate(quiet_plan)).history
    baseline = quiet.references["synchronous"].curve[-1].loss
    fault_free = quiet.curve  # under virtual time the fault-free run is its own baseline
    figures = {"final": quiet.final.loss, "baseline": baseline,
               "tau_against_synchronous": _gap(quiet, "synchronous", "processed"),
               "tau_of_gain": _of_gain(quiet), "tau_extra_tokens": _extra(quiet)}
    for name, plan in _costly(quiet_plan).items():
        if seed < seeds or name == _SMALL:
            figures[f"{name}_against_baseline"] = relative_gap(ended(simulate(plan)).history.final, fault_free,
                                                               "merged")
    if seed < seeds:
        broken = ended(simulate(_with_faults(quiet_plan, load("flagship")[0]))).history
        others = {name: ended(simulate(with_cluster(quiet_plan, **changes))).history
                  for name, changes in _OTHERS.items()}
        figures |= {"faults_against_baseline": relative_gap(broken.final, fault_free, "merged"),
                    "faults_against_synchronous": _gap(broken, "synchronous", "processed"),
                    "faults_of_gain": _of_gain(broken),
                    "tau0_of_gain": _of_gain(others["tau0"]), "faults_extra_tokens": _extra(broken),
                    "late_peak_baseline": others["late_peak_tau"].references["synchronous"].curve[-1].loss,
                    } | _scavenged(seed, fault_free)
        figures |= {f"{name}_against_synchronous": _gap(history, "synchronous", "processed")
                    for name, history in others.items()}
        figures |= {f"{name}_extra_tokens": _extra(history) for name, history in others.items()}
    return figures


def _of_the_scenario(seed: int) -> float:
    """The gap of `no-fault` as it is, to the synchronous run."""
    plan = with_cluster(freeze(load("no-fault")[0], seed))
    return _gap(ended(simulate(plan)).history, "synchronous", "processed")


def _with_faults(plan: Plan, scenario: Scenario) -> Plan:
    """The plan with a scenario's faults."""
    return plan.model_copy(update={"faults": freeze(scenario, plan.seed).faults})


def _costly(plan: Plan) -> dict[str, Plan]:
    """What else may cost something, with the quiet run's own settings, so that it has the same baseline."""
    scenario = load("storm")[0]
    lasting = tuple(fault.model_copy(update={"duration": _STORM_S}) for fault in scenario.faults)
    return {"storm": _with_faults(plan, scenario.model_copy(update={"faults": lasting})),
            "heterogeneous": with_cluster(plan, speeds=[1, 1, 0.82, 0.82], variance=0.1),
            "int4": with_cluster(plan, gradients="int4", broadcasts="int4"),
            "int4_with_error_feedback": with_cluster(plan, gradients="int4", broadcasts="int4", error_feedback=True)}


def _scavenged(seed: int, four: Sequence[LossPoint]) -> Figures:
    """Against as many learners all the time as there were on average, from the same warm start, and against as many as
    were left at the end, from their own; the tokens are the same."""
    six = _quiet(seed, 6)
    warm = initial_values(six)
    final = ended(performed(scavenging(seed), initial=warm)).final()
    return {"scavenging_against_six": relative_gap(final, ended(performed(six, initial=warm)).curve(), "merged"),
            "scavenging_against_four": relative_gap(final, four, "merged")}


def scavenging(seed: int) -> Plan:
    """Four learners, eight for twice as long, and four again: six on average."""
    guests = [f"learner-{index}" for index in range(5, 9)]
    return _quiet(seed, 8, [{"join": guests, "at": "15s"}, {"terminate": guests, "at": "45s"}])


def _quiet(seed: int, learners: int = 4, faults: Sequence[dict[str, Any]] = ()) -> Plan:
    """`no-fault` as long as losses are stated for; more or fewer learners take their share of the steps."""
    document = load("no-fault")[0].model_dump(mode="json", by_alias=True)
    fewer = document["cluster"]["learners"] / learners
    document["cluster"] |= {"learners": learners} | {name: round(BASE[name] * fewer) for name in _LENGTH}
    document["deadline"] = "240s"
    return with_cluster(freeze(Scenario.model_validate(document | {"faults": list(faults)}), seed))


def _confirmed(perform: Callable[[Plan], Result], simulated: Figures) -> dict[str, float]:
    """Return the same figures in real time, of one seed, beside `simulated`."""
    def real(plan: Plan) -> History:
        return ended(perform(plan)).history

    plan = _quiet(0)
    quiet = real(plan)
    fault_free = quiet.curve
    measured = {"final": quiet.final.loss, "final_against_simulated": quiet.final.loss / simulated["final"] - 1,
                "tau_against_synchronous": _gap(quiet, "synchronous", "processed")}
    for name, changes in _OTHERS.items():
        measured[f"{name}_against_synchronous"] = _gap(real(with_cluster(plan, **changes)), "synchronous", "processed")
    for name, other in _costly(plan).items():
        measured[f"{name}_against_baseline"] = relative_gap(real(other).final, fault_free, "merged")
    guests = scavenging(0)  # against itself: it begins from a warm start of its own, not from that of six
    measured["scavenging_against_simulated"] = relative_gap(real(guests).final, ended(performed(guests)).curve(),
                                                            "merged")
    return {name: round(value, 5) for name, value in measured.items()}


def _gap(history: History, kind: str, count: str) -> float:
    """The final loss' relative gap to a reference, at as many tokens processed or merged."""
    return relative_gap(history.final, history.references[kind].curve, count)


def _extra(history: History) -> float:
    """How many more tokens it took to the loss of whichever ends higher, as a share of the synchronous run's."""
    return extra_tokens(history.curve, history.references["synchronous"].curve, "processed")


def _of_gain(history: History) -> float:
    """The gap as a share of what the synchronous run gained after the shared warm start."""
    curve = history.references["synchronous"].curve
    return (history.final.loss - curve[-1].loss) / (curve[0].loss - curve[-1].loss)
