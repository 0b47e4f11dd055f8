"""The fleet's simulation beside a model in SimPy with a process for every slice: as quick, and the same fleet?"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator
from statistics import mean, median
from typing import Any

import numpy as np
import simpy

from diloco_chaos.harness.base.workers import workers_for
from diloco_chaos.harness.failures.process import FailureProcess
from diloco_chaos.harness.fleet.fleet import Fleet
from diloco_chaos.harness.fleet.paper import PUBLISHED, fitted, fleet_of
from diloco_chaos.harness.fleet.replications import TRIALS, estimate, replicated
from diloco_chaos.harness.fleet.simulation import simulate

_DAY_S = 86_400.0
_DAYS, _REPLICATIONS = 30, 100
_PAIRS, _TURNS = 5, 20


class _Group:
    """Slices that train in step, in SimPy's time."""

    def __init__(self, env: simpy.Environment, fleet: Fleet, slices: int, chance: np.random.Generator) -> None:
        self.env, self.fleet, self.present = env, fleet, slices
        self.work, self._counted_until, self._stands_until = 0.0, 0.0, 0.0
        for _ in range(slices):
            env.process(self._slice(chance))

    def _slice(self, chance: np.random.Generator) -> Generator[simpy.Event, Any, Any]:
        mean_up, away = self.fleet.slice_mtbf, self.fleet.repair
        if chance.random() >= mean_up / (mean_up + away):
            self.present -= 1
            yield self.env.timeout(chance.exponential(away))
            self._changed(1, self.fleet.grow)
        while True:
            yield self.env.timeout(chance.exponential(mean_up))
            self._changed(-1, self.fleet.detection + self.fleet.shrink)
            yield self.env.timeout(chance.exponential(away))
            self._changed(1, self.fleet.grow)

    def _changed(self, step: int, stands: float) -> None:
        self.tell()
        self.present += step
        if self.env.now >= self._stands_until:
            self._stands_until = self.env.now + stands

    def tell(self) -> None:
        """Add the work that was made since the last count, in slice-seconds."""
        self.work += self.present * max(0.0, self.env.now - max(self._counted_until, self._stands_until))
        self._counted_until = self.env.now


def by_simpy(fleet: Fleet, horizon: float, seed: int) -> float:
    """Goodput of one replication, of a mode that is elastic."""
    env, chance = simpy.Environment(), np.random.default_rng(seed)
    share, rest = divmod(fleet.slices, fleet.groups)
    groups = [_Group(env, fleet, share + (number < rest), chance) for number in range(fleet.groups)]
    env.run(until=horizon)
    for group in groups:
        group.tell()
    return sum(group.work for group in groups) / (fleet.slices * horizon)


def _history(say: Callable[[str], None]) -> dict[str, Any]:
    """Failures with a history, as a year of 400 real servers has them, beside exponential ones: the same fleet in
    turns."""
    process = FailureProcess.model_validate({
        "lemons": 1.8, "relapse": "29%", "relapse_shape": 0.37, "burst": "24%", "burst_size": 2.9, "waves": 2.3,
        "repair_shape": 0.43})
    fleets = {"exponential": Fleet(), "history": Fleet(process=process)}
    took: dict[str, list[float]] = {name: [] for name in fleets}
    for seed in range(_TURNS):
        for name, fleet in fleets.items():
            began = time.perf_counter()
            simulate(fleet, _DAYS * _DAY_S, seed)
            took[name].append(time.perf_counter() - began)
    times = median(history / plain for history, plain in zip(took["history"], took["exponential"], strict=True))
    say(f"  fleet: failures with a history take {times:.2f} times as long as exponential ones")
    return {"history_over_exponential": round(times, 2)}


def measure(say: Callable[[str], None]) -> dict[str, Any]:
    """One replication of 1.2 million chips in turns, and the whole published table with a hundred of each."""
    fleet, horizon = Fleet.model_validate({"repair": "6460s", "shrink": "8.8s", "grow": "8.8s", "grow_within": 0}
                                          ), _DAYS * _DAY_S
    took: dict[str, list[float]] = {"simpy": [], "ours": []}
    goodputs: dict[str, list[float]] = {"simpy": [], "ours": []}
    ways: dict[str, Callable[[int], float]] = {"simpy": lambda seed: by_simpy(fleet, horizon, seed),
                                               "ours": lambda seed: simulate(fleet, horizon, seed).goodput}
    for pair in range(_PAIRS):
        for name, way in ways.items():
            began = time.perf_counter()
            goodputs[name].append(way(pair))
            took[name].append(time.perf_counter() - began)
        say(f"  fleet {pair}: SimPy {took['simpy'][-1]:.2f} s, ours {took['ours'][-1]:.3f} s")
    apart = estimate([theirs - ours for theirs, ours in zip(goodputs["simpy"], goodputs["ours"], strict=True)])
    began, workers = time.perf_counter(), workers_for(TRIALS, len(os.sched_getaffinity(0)))
    try:
        table = replicated([fleet_of(cell, fitted()) for cell in PUBLISHED], horizon, _REPLICATIONS, 0, workers)
    finally:
        workers.close()
    seconds = time.perf_counter() - began
    worst = max(abs(summary.goodput.mean - cell.goodput) for summary, cell in zip(table, PUBLISHED, strict=True))
    times = median(theirs / ours for theirs, ours in zip(took["simpy"], took["ours"], strict=True))
    return {"simpy_over_ours": round(times, 1), **_history(say),
            "seconds": {name: round(median(values), 3) for name, values in took.items()},
            "goodput": {name: round(mean(values), 5) for name, values in goodputs.items()},
            "apart": round(apart.mean, 5), "interval": round(apart.half or 0.0, 5),
            "table_s": round(seconds, 1), "table_cells": len(PUBLISHED), "table_replications": _REPLICATIONS,
            "table_off_by_at_most": round(worst, 4)}
