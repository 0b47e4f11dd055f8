"""Goodput in a storm: eight learners, each killed twice, one at a time; Decoupled DiLoCo against data parallelism.

The window is as long as it must be for the plan to leave Decoupled DiLoCo 90% of all learner time. What each mode
should make of it is predicted from the plan, the interval of the checkpoints and the time that a new process takes to
be there (the median of this run's own): decoupled loses what is dead; data parallelism every second in which anybody
is, and what it did since its last checkpoint; elastic data parallelism the seconds in which all stand still.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from statistics import median
from typing import Any

from benchmarks.interval import interval
from chaos.availability import done_again, regrouping
from chaos.checks.outcome import goodput_between
from chaos.compare import under
from chaos.history import History
from chaos.plan import Plan, freeze
from chaos.run import Result
from chaos.scenario import parse
from chaos.simulate import simulate
from harness.simulation.parameters import Parameters
from harness.trainer.config import TrainerConfig

LEARNERS, KILLS, AVAILABLE = 8, 16, 0.9
DOWN_S = 5.0
"""From a kill to its learner's return, as planned."""
STARTS_S = {"simulated": 1.6, "local": 0.4}
"""What a new process needs of it at a place; it is started as much earlier."""
WINDOW_S = KILLS * DOWN_S / (LEARNERS * (1 - AVAILABLE))
MODES = ("decoupled", "data_parallel", "elastic_data_parallel")
_MACHINE = Parameters(cores=2 * LEARNERS)  # nobody waits for a processor


def measure(perform: Callable[[Plan], Result], seeds: int, say: Callable[[str], None]) -> dict[str, Any]:
    """Under virtual time, and in real time once."""
    found: dict[str, Any] = {"window_s": WINDOW_S, "kills": KILLS}
    by_mode: dict[str, list[dict[str, float]]] = {mode: [] for mode in MODES}
    for seed in range(seeds):
        for mode in MODES:
            by_mode[mode].append(_figures(simulate(under(plan(seed), mode), _MACHINE).history))
        say(f"  storm seed {seed}: " + ", ".join(f"{mode} {by_mode[mode][-1]['goodput']:.3f}" for mode in MODES))
    for mode, each in by_mode.items():
        found[mode] = {key: interval([one[key] for one in each]) for key in ("goodput", "predicted")}
    found["ratio"] = interval([mine["goodput"] / its["goodput"] for mine, its
                               in zip(by_mode["decoupled"], by_mode["data_parallel"], strict=True)])
    found["confirmed_on_local"] = {mode: _figures(perform(under(plan(0, "local"), mode)).history, "local")
                                   for mode in MODES[:2]}
    return found


def plan(seed: int, place: str = "simulated") -> Plan:
    """Every learner is killed twice, in an order drawn from the seed, one at a time."""
    chance = random.Random(f"rivals/{seed}")
    order = [learner for _ in range(2) for learner in chance.sample(range(1, LEARNERS + 1), LEARNERS)]
    every = WINDOW_S / KILLS
    faults = "".join(f"  - {{kill: learner-{learner}, at: {(index + chance.uniform(0.02, 0.07)) * every!r}s, "
                     f"restart_after: {_restart_after(place)}s}}\n" for index, learner in enumerate(order))
    steps = round(WINDOW_S / 0.06)
    return freeze(parse(f"diloco_chaos: 1\nname: rivals\ndeadline: 600s\ncluster: {{model: quadratic, learners: "
                        f"{LEARNERS}, fragments: 8, sync_every: 24, budget: {steps} steps, step_time: 60ms}}\n"
                        f"faults:\n{faults}"), seed)


def _restart_after(place: str) -> float:
    return DOWN_S - STARTS_S[place]


def _figures(history: History, place: str = "simulated") -> dict[str, float]:
    assert history.zero is not None, "it was steady"
    cluster, end = history.plan.cluster, history.zero + WINDOW_S
    hellos = {(event["learner"], event["incarnation"]): event.t for event in reversed(history.tape.of("hello"))}
    starts = [hellos[event["target"], event["incarnation"]] - event.t for event in history.tape.of("spawn")
              if event["incarnation"] and (event["target"], event["incarnation"]) in hellos]
    down = _restart_after(place) + median(starts)
    return {"goodput": round(goodput_between(history, history.zero, end), 4),
            "predicted": round(_predicted(cluster, down), 4), "start_s": round(median(starts), 3),
            "checkpoint_every": cluster.checkpoint_every}


def _predicted(cluster: TrainerConfig, down: float) -> float:
    """`down`: seconds from each kill to its learner's return."""
    if cluster.mode == "data_parallel":
        lost = down + done_again(cluster)
    elif cluster.mode == "elastic_data_parallel":
        lost = regrouping(cluster, down, WINDOW_S)
    else:
        lost = down / LEARNERS
    return 1 - KILLS * lost / WINDOW_S
