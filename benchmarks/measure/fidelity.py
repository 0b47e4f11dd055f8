"""How near a simulation comes: its parameters from a fault-free run in real time, then three faults that it never saw,
in real time and simulated. Medians of several runs, each with a fault-free run of its own: the speed of a machine that
others share differs from minute to minute."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from diloco_chaos.chaos.checks.outcome import goodput_between
from diloco_chaos.chaos.evidence.history import History
from diloco_chaos.chaos.runner.run import Audience, run_plan
from diloco_chaos.chaos.runner.simulate import simulate
from diloco_chaos.chaos.scenario.loading import load
from diloco_chaos.chaos.scenario.plan import Plan, freeze
from diloco_chaos.harness.record.tape.events import Spawn
from diloco_chaos.harness.simulation.parameters import measured

SCENARIOS = ("kill-one", "straggler", "split")
"""A kill in the middle of an upload, a learner at a quarter of its speed, a partition."""

_REPEATS = 3


def measure(runs: Path, audience: Audience, say: Callable[[str], None]) -> dict[str, Any]:
    """Participation of the learner that is hit, seconds to reintegration, goodput: real, simulated, ratio."""
    real: dict[str, dict[str, list[float]]] = {name: defaultdict(list) for name in SCENARIOS}
    virtual: dict[str, dict[str, list[float]]] = {name: defaultdict(list) for name in SCENARIOS}
    for _ in range(_REPEATS):
        parameters = measured(run_plan(_plan("base"), runs, audience).history.tape, len(os.sched_getaffinity(0)))
        say(f"  fidelity: {parameters.model_dump()}")
        for name in SCENARIOS:
            plan = _plan(name)
            for kept, history in ((real, run_plan(plan, runs, audience).history),
                                  (virtual, simulate(plan, parameters).history)):
                for what, value in figures(history).items():
                    kept[name][what].append(value)
            say(f"  fidelity {name}: real {dict(real[name])}, simulated {dict(virtual[name])}")
    return {name: {what: _compared(real[name][what], virtual[name][what]) for what in real[name]}
            for name in SCENARIOS}


def _compared(real: list[float], simulated: list[float]) -> dict[str, Any]:
    return {"real": round(median(real), 3), "simulated": round(median(simulated), 3),
            "ratio": round(median(simulated) / median(real), 3), "each_real": [round(value, 3) for value in real],
            "each_simulated": [round(value, 3) for value in simulated]}


def _plan(name: str) -> Plan:
    plan = freeze(load(name)[0], 0)
    return plan.model_copy(update={"checks": plan.checks.model_copy(update={"loss_parity": None})})


def figures(history: History) -> dict[str, float]:
    """Return the figures of one run that are compared: name -> value (shares, and seconds where it ends with `_s`)."""
    zero = history.zero or 0.0
    merges = [merge for merge in history.merges if merge.t > zero]
    hit = next((target for planned in history.plan.faults for target in planned.fault.targets
                if target != history.coordinator), "")
    compared = {"participation": sum(any(part.learner == hit for part in merge.contributions)
                                     for merge in merges) / len(merges),
                "goodput": goodput_between(history, zero, history.end)}
    spawns = [event for event in history.tape.of(Spawn, node="harness")
              if event.target == hit and event.incarnation == 1]
    back = [merge.t for merge in merges for part in merge.contributions
            if (part.learner, part.incarnation) == (hit, 1)]
    return compared | ({"reintegration_s": min(back) - spawns[0].t} if spawns and back else {})
