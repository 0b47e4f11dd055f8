"""Virtual time: how fast it is, what it adds to the training itself, and how soon exploration finds planted bugs."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.built_in import config_of
from benchmarks.measure.planted import BASE, HARDER, PLANTED, Patch
from diloco_chaos.chaos.exploration.explore import SCHEDULES, Search, explore
from diloco_chaos.chaos.exploration.generate import plan_of
from diloco_chaos.chaos.runner.simulate import data_file, performed, record
from diloco_chaos.chaos.scenario.model import Scenario
from diloco_chaos.chaos.scenario.plan import Plan
from diloco_chaos.harness.base.workers import WorkerProcesses
from diloco_chaos.harness.record.tape.events import Step
from diloco_chaos.harness.trainer.config.schedule import learning_rate
from diloco_chaos.harness.trainer.runtime.replica_factory import replicas

_RUNS = 10
_CALIBRATION = 5_000_000
_SEEDS = range(3)
_MOST_SCHEDULES = 1920
_WITHOUT_END = 1_000_000
_LONGEST_S = 600.0
"""Of a hunt for a bug that takes several faults."""
_MORE_SEEDS, _FEW_SEEDS = range(5), range(2)


def measure(say: Callable[[str], None]) -> dict[str, Any]:
    """All of it."""
    return {"reference_run": _reference(say), "torch": _torch(say), "planted": _planted(say)}


def _reference(say: Callable[[str], None]) -> dict[str, Any]:
    """M = 8, P = 8, H = 24, 400 steps per learner, 4 faults, the tape written; interleaved with a loop of plain Python,
    so that a slow moment of the machine can be told from a slow simulator."""
    plan = plan_of(_scenario("quadratic", learners=8, sync_every=24, budget=400, step_time=0.06), [
        {"kill": "learner-1", "at": "4s", "restart_after": "2s"}, {"partition": "learner-2", "at": "8s", "for": "2s"},
        {"pause": "learner-3", "at": "12s", "for": "1s"}, {"kill": "syncer", "at": "16s", "restart_after": "1s"}], 0)
    walls, loops, virtual = [], [], 0.0
    record(plan)
    with tempfile.TemporaryDirectory() as folder:
        for number in range(_RUNS):
            began = time.process_time()
            done = performed(plan)
            done.stage.save(Path(folder) / str(number))
            walls.append(time.process_time() - began)
            virtual = done.stage.now()
            began = time.process_time()
            for _ in range(_CALIBRATION):
                pass
            loops.append(time.process_time() - began)
    seconds = median(walls)
    say(f"  reference run: {seconds * 1e3:.0f} ms, {60 / seconds:.0f} a minute and core")
    return {"seconds": round(seconds, 3), "per_minute_and_core": round(60 / seconds),
            "times_real_time": round(virtual / seconds),
            "ns_per_empty_loop": round(median(loops) / _CALIBRATION * 1e9, 1),
            "in_empty_loops": round(_CALIBRATION * median(
                wall / loop for wall, loop in zip(walls, loops, strict=True)))}


def _torch(say: Callable[[str], None]) -> dict[str, Any]:
    """A run with the torch workload against the same steps without anything around them, interleaved."""
    scenario = _scenario("tiny", learners=4, sync_every=8, budget=60, step_time=0.1)
    plan = plan_of(scenario, [{"kill": "learner-1", "at": "2500ms", "restart_after": "1s"}], 0)
    pairs = []
    record(plan)
    for number in range(5):
        began = time.perf_counter()
        tape, _ = record(plan)
        whole = time.perf_counter() - began
        bare = _bare(plan, len(tape.of(Step)))
        pairs.append(whole / bare)
        say(f"  torch {number}: {whole:.1f} s, its {len(tape.of(Step))} steps alone {bare:.1f} s")
    return {"ratio": round(median(pairs), 3), "pairs": [round(pair, 3) for pair in pairs]}


def _bare(plan: Plan, steps: int) -> float:
    cluster = config_of(plan)
    make = replicas(cluster, data_file(plan), cluster.spec.initial(cluster.seed))
    learners = [make(index) for index in range(cluster.learners)]
    began = time.perf_counter()
    for step in range(steps):
        learners[step % len(learners)].train(step // len(learners), learning_rate(cluster, step * 1024))
    return time.perf_counter() - began


def _planted(say: Callable[[str], None]) -> dict[str, Any]:
    """Seconds until each planted bug is found and shrunk with two workers, and how many schedules that takes, with
    guidance and by chance; None: not found in so many."""
    results: dict[str, Any] = {"at_most": _MOST_SCHEDULES}
    for name, plant in PLANTED.items():
        guided = [_hunted(plant, seed, True) for seed in _SEEDS]
        chance = [_hunted(plant, seed, False) for seed in _SEEDS]
        results[name] = {"seconds": [hunt.seconds for hunt in guided], "faults": [hunt.faults for hunt in guided],
                         "schedules_guided": [hunt.schedules for hunt in guided],
                         "schedules_by_chance": [hunt.schedules for hunt in chance]}
        say(f"  {name}: {results[name]}")
    for name, plant in HARDER.items():
        hunts = [_hunted(plant, seed, True, _LONGEST_S) for seed in _MORE_SEEDS]
        results[name] = {"within_s": _LONGEST_S, "seconds": [hunt.seconds for hunt in hunts],
                         "schedules": [hunt.schedules for hunt in hunts], "faults": [hunt.faults for hunt in hunts],
                         "by_chance": [_hunted(plant, seed, False, _LONGEST_S).schedules for seed in _FEW_SEEDS]}
        say(f"  {name}: {results[name]}")
    return results


@dataclass(frozen=True)
class _Hunt:
    seconds: float
    schedules: int | None
    faults: int | None


def _hunted(plant: Callable[[Patch], str], seed: int, guided: bool, most_s: float = 0.0) -> _Hunt:
    """Plant a bug, and explore until it is found: in so many seconds at the most, or else so many schedules."""
    patch = _Patch()
    check = plant(patch)
    pool = WorkerProcesses(SCHEDULES, 2)  # forked now: the bug is in its processes, too
    try:
        with tempfile.TemporaryDirectory() as folder:
            began = time.perf_counter()
            state = explore(Search(BASE, seed, guided=guided), Path(folder), pool,
                            runs=_WITHOUT_END if most_s else _MOST_SCHEDULES,
                            stop=lambda state: check in state.found or 0 < most_s < time.perf_counter() - began)
            seconds = round(time.perf_counter() - began, 1)
            if check not in state.found:
                return _Hunt(seconds, None, None)
            first, file = state.found[check]
            return _Hunt(seconds, first.number + 1, file.read_text().count("\n- "))
    finally:
        pool.close()
        patch.undo()


class _Patch:
    """Implements `benchmarks.measure.planted.Patch`."""

    def __init__(self) -> None:
        self._done: list[tuple[object, str, object]] = []

    def setattr(self, target: object, name: str, value: object) -> None:
        """Replace it, and remember what was there."""
        self._done.append((target, name, vars(target)[name]))
        setattr(target, name, value)

    def undo(self) -> None:
        """All as it was."""
        for target, name, value in reversed(self._done):
            setattr(target, name, value)


def _scenario(model: str, **settings: float) -> Scenario:
    cluster = {"model": model, **settings, "budget": int(settings["budget"]),
               "step_time": f"{settings['step_time']!r}s"}
    return Scenario.model_validate({"diloco_chaos": 1, "name": "bench", "deadline": "200s", "cluster": cluster})
