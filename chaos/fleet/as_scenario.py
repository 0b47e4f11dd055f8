"""A point of a fleet's prediction as a scenario: what was predicted, and a run that says whether it is so."""

from __future__ import annotations

import math
from statistics import mean
from typing import Any, NamedTuple

from diloco_chaos.chaos.scenario.loading import parse
from diloco_chaos.chaos.scenario.plan import Plan, freeze
from diloco_chaos.faults.processes.process import TYPICAL_START_S
from diloco_chaos.harness.base.units import show_long, show_seconds
from diloco_chaos.harness.fleet.fleet import Fleet, Mode
from diloco_chaos.harness.fleet.scaled import Scaled, scaled
from diloco_chaos.harness.fleet.simulation import simulate

FAILURES = 40
"""Of a run, on average."""
WITHIN = 0.05
"""How far from the predicted goodput the measured one may be."""
_REPLICATIONS, _SEEDS = 60, 40
_HEAD_S, _TAIL = 2.0, 2.0
"""Seconds before the failures begin; outages after them, for the last one to be over."""
_QUANTILES, _LEAST_S = 10, 0.05
_START_S = 2.0
"""What a process takes to start, and to be merged from again, of a learner's outage."""
_TEXT = """diloco_chaos: 1
# A fleet of {chips} chips, {way}, of which each is interrupted once in {mtbf}.
# Here: as many failures for each step of a learner (of {step} in the fleet), and each as long in steps.
# Predicted goodput is {fleet:.1%} for the fleet, and {run:.1%} for this run.
# With --seed {seed} it has as many failures as on average.
name: {name}
description: A fleet of {chips} chips, {way}, scaled to {words}.
cluster:
  {{{cluster},
   learners: {peers}, model: quadratic, step_time: {step_time:.3f}s, budget: {steps} steps}}
deadline: {deadline:.0f}s
faults:
  - storm: learners
    at: {head:g}s
    for: {lasts:.1f}s
    mtbf: {up:.3f}s
    per: {per}
    spacing: 0s
    most_down: {down}
{what}
checks:   # what is asked is goodput: everything else may take as long as the failures make it
  goodput: {{at_least: {least:.1%}}}
  no_global_stall: {{max_gap: {deadline:.0f}s}}
  uptime: {{at_least: 0%}}
  self_healing: {back}
  reintegration: {back}
  blast_radius: {{at_least: 0%}}
"""


class Made(NamedTuple):
    """The scenario, and what is predicted of it."""

    text: str
    run: Scaled
    goodput: float
    seed: int
    """Of a plan with as many failures as there are on average."""


def scenario_of(fleet: Fleet, step_s: float, chips: str, way: str, fleet_goodput: float) -> Made:
    """`step_s`: seconds of an inner step of the fleet; `chips`, `way`: the fleet in words; `fleet_goodput`: predicted.

    Raises:
        ScaledError: no run on one machine stands for it.
    """
    run = scaled(fleet, step_s, FAILURES)
    predicted = _predicted(run)

    def text(seed: int) -> str:
        return _text(fleet, run, step_s, chips, way, fleet_goodput, predicted, seed)
    scenario = parse(text(0))
    drawn = [freeze(scenario, number) for number in range(_SEEDS)]
    # of failures at one moment a rigid run has one, so that a process brings fewer than are asked for
    fewer = run.fleet.process is not None and fleet.mode == "data_parallel"
    usual = mean(len(plan.faults) for plan in drawn) if fewer else FAILURES
    seed = min(range(_SEEDS), key=lambda number: _unlike(drawn[number], run, usual))
    return Made(text(seed), run, predicted, seed)


def _predicted(run: Scaled) -> float:
    """While failures come as simulated, and the seconds before and after, in which they only end."""
    among = mean(simulate(run.fleet, run.lasts, seed).goodput for seed in range(_REPLICATIONS))
    still_out = (1 - among) * run.outage / 2
    return (among * run.lasts + _quiet_s(run) - still_out) / (run.lasts + _quiet_s(run))


def _quiet_s(run: Scaled) -> float:
    """Before and after. A run that is as much quicker as it may be must not be over before its last failure."""
    return _HEAD_S + _TAIL * run.outage + WITHIN * run.lasts


def _text(fleet: Fleet, run: Scaled, step_s: float, chips: str, way: str, fleet_goodput: float, predicted: float,
          seed: int) -> str:
    peers, rigid = run.fleet.chips, fleet.mode == "data_parallel"
    together = rigid and run.fleet.process is None
    # merged often: who dies takes little along, as in the fleet, where the others of its learner have it as well
    cluster = {"decoupled": "quorum: 1, fragments: 2, sync_every: 2, overlap: 1",
               "data_parallel": "checkpoint_every: 1",
               "elastic_data_parallel": f"reconfiguration: {run.stands:.3f}s"}[fleet.mode]
    whole = run.lasts + _quiet_s(run)
    return _TEXT.format(
        chips=chips, way=way, mtbf=show_long(fleet.mtbf), step=show_seconds(step_s), fleet=fleet_goodput,
        run=predicted, seed=seed, name=f"fleet-{fleet.mode.replace('_', '-')}", lasts=run.lasts, head=_HEAD_S,
        words=show_long(run.lasts), cluster=f"mode: {fleet.mode}, {cluster}", peers=peers, step_time=run.step_time,
        steps=round(predicted * whole / run.step_time), deadline=3 * whole + 60, up=run.up / (peers if together else 1),
        per="cluster" if together else "node", down=1 if rigid else peers, what=_what(run, fleet.mode),
        least=max(0.0, predicted - WITHIN),  # a few repairs of a process outlast the run
        back=f"{{within: {3 * whole + 60:.0f}s}}" if run.fleet.process is None else "off")


def _what(run: Scaled, mode: Mode) -> str:
    """What happens at each failure. Where a group stands again for who is back, repairs are exponential, as in the
    fleet: it matters whether they end before the group goes on. A process draws them itself."""
    away = [run.outage]
    if run.fleet.process is not None:
        settings = run.fleet.process.model_dump(mode="json", exclude_defaults=True)
        away_s = f"{max(_LEAST_S, run.outage - _START_S):.3f}s"
        rigid = mode == "data_parallel"  # which stands for its restart, however long a repair takes
        flow = ", ".join(f"{name}: {_figure(value)}" for name, value in settings.items()
                         if not (rigid and name in ("repair_shape", "repair_sigma")))
        return (f"    repair: {away_s}\n    process:\n      {{{flow}}}"
                + f"\n    of:\n      - kill: {{restart_after: {away_s}}}" * rigid)
    if mode == "elastic_data_parallel":
        away = [-run.outage * math.log(1 - (number + 0.5) / _QUANTILES) for number in range(_QUANTILES)]
    return "\n".join(["    of:", *(f"      - kill: {{restart_after: {max(_LEAST_S, seconds - _START_S):.3f}s}}"
                                   for seconds in away)])


def _figure(value: Any) -> str:
    """Return a setting with four digits."""
    if isinstance(value, str) and value.endswith("s") and value[0].isdigit():
        return f"{float(value[:-1]):.3f}s"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _unlike(plan: Plan, run: Scaled, failures: float) -> float:
    """Return how far a plan is from the average: by how many failures come while the run lasts, where there are so many
    on average, and how long they are."""
    outages = [planned.fault.expected_lost_time() for planned in plan.faults]
    if not outages:
        return math.inf
    usual = run.outage - _START_S + TYPICAL_START_S
    return abs(len(outages) / failures - 1) + abs(mean(outages) / usual - 1)
