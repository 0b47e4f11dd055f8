"""Goodput while learners die: eight, one at a time; Decoupled DiLoCo against data parallelism, rigid and elastic.

The window is as long as it must be for the plan to leave Decoupled DiLoCo 90% of all learner time where each learner
is killed twice. A death is *seen at once*, as that of a process is, whose connections end with it, or *by timeout*, as
that of a machine is, of which nothing more is heard. What each mode should make of it is predicted from when each
learner was dead in that run, and the interval of the checkpoints: decoupled loses what is dead; data parallelism every
second in which anybody is, and what it did since its last checkpoint; elastic data parallelism the seconds in which all
stand still, and what is dead. How much each loses goes with how often somebody dies, which is why the same is measured
at other rates.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Sequence
from statistics import median
from typing import Any

from benchmarks.built_in import config_of
from benchmarks.interval import interval
from diloco_chaos.chaos.checks.outcome import goodput_between
from diloco_chaos.chaos.evidence.history import History
from diloco_chaos.chaos.report.compare import under
from diloco_chaos.chaos.runner.run import Result
from diloco_chaos.chaos.runner.simulate import record
from diloco_chaos.chaos.scenario.loading import parse
from diloco_chaos.chaos.scenario.plan import Plan, freeze
from diloco_chaos.faults import Kill
from diloco_chaos.harness.record.tape.events import Hello, Lost
from diloco_chaos.harness.simulation.parameters import Parameters
from diloco_chaos.harness.trainer.config.cluster_config import TrainerConfig

LEARNERS, KILLS, AVAILABLE = 8, 16, 0.9
OTHER_RATES = (2, 4, 8, 32)
"""Kills in the window."""
DOWN_S = 5.0
"""From a kill to its learner's return, as planned."""
STARTS_S = {"simulated": 1.6, "local": 1.5}
"""What a new process needs of it at a place; it is started as much earlier."""
WINDOW_S = KILLS * DOWN_S / (LEARNERS * (1 - AVAILABLE))
MODES = ("decoupled", "data_parallel", "elastic_data_parallel")
SEEN = ("at_once", "by_timeout")
_HIDDEN_S = 4.0
"""For which a link does not pass on that a process is gone: longer than the hub waits for a silent one."""
_BEFORE_S = 0.05
_MACHINE = Parameters(cores=2 * LEARNERS)  # nobody waits for a processor


def measure(perform: Callable[[Plan], Result], seeds: int, say: Callable[[str], None]) -> dict[str, Any]:
    """Under virtual time, and in real time once."""
    return {"window_s": WINDOW_S, "kills": KILLS, **{f"seen_{seen}": {
        "simulated": _with_ratios(_compared(range(seeds), say, seen=seen)),
        "on_local": {mode: _figures(perform(under(plan(0, "local", seen=seen), mode)).history, seen)
                     for mode in MODES}} for seen in SEEN},
        "by_kills": {str(kills): _compared(range(seeds), say, kills=kills) for kills in OTHER_RATES}}


def _compared(seeds: Iterable[int], say: Callable[[str], None], kills: int = KILLS,
              seen: str = "at_once") -> dict[str, Any]:
    """Return each mode's figures over these seeds, as intervals: mode -> figure -> interval."""
    by_mode: dict[str, list[dict[str, float]]] = {mode: [] for mode in MODES}
    for seed in seeds:
        for mode in MODES:
            by_mode[mode].append(_figures(_simulated(under(plan(seed, kills=kills, seen=seen), mode)), seen))
        say(f"  {kills} kills seen {seen}, seed {seed}: "
            + ", ".join(f"{mode} {by_mode[mode][-1]['goodput']:.3f}" for mode in MODES))
    return {mode: {key: interval([figures[key] for figures in each]) for key in each[0]}
            for mode, each in by_mode.items()}


def _with_ratios(by_mode: dict[str, Any]) -> dict[str, Any]:
    """Return these figures with the ratio of Decoupled DiLoCo's goodput to each rival's added."""
    values = {mode: by_mode[mode]["goodput"]["values"] for mode in MODES}
    return by_mode | {f"over_{rival}": interval([mine / its for mine, its
                                                 in zip(values["decoupled"], values[rival], strict=True)])
                      for rival in MODES[1:]}


def _simulated(a_plan: Plan) -> History:
    return History(a_plan, record(a_plan, _MACHINE)[0])


def plan(seed: int, place: str = "simulated", kills: int = KILLS, seen: str = "at_once") -> Plan:
    """So many kills, spread over the window; learners take turns, in an order drawn from the seed."""
    chance = random.Random(f"rivals/{seed}")
    order, every = chance.sample(range(1, LEARNERS + 1), LEARNERS), WINDOW_S / kills
    faults = []
    for index in range(kills):
        learner, at = f"learner-{order[index % LEARNERS]}", (index + chance.uniform(0.02, 0.07)) * every
        faults.append(f"  - {{kill: {learner}, at: {at!r}s, restart_after: {_restart_after(place)}s}}\n")
        if seen == "by_timeout":  # its end is passed on long after anybody waits for it
            faults.append(f"  - {{slow_close: {learner}, at: {max(0.0, at - _BEFORE_S)!r}s, for: {_HIDDEN_S}s, "
                          f"delay: {2 * _HIDDEN_S}s, direction: upstream}}\n")
    steps = round(WINDOW_S / 0.06)
    return freeze(parse(f"diloco_chaos: 1\nname: rivals\ndeadline: 600s\ncluster: {{model: quadratic, learners: "
                        f"{LEARNERS}, fragments: 8, sync_every: 24, budget: {steps} steps, step_time: 60ms}}\n"
                        f"faults:\n{''.join(faults)}"), seed)


def _restart_after(place: str) -> float:
    return DOWN_S - STARTS_S[place]


def _figures(history: History, seen: str = "at_once") -> dict[str, float]:
    assert history.zero is not None, "it was steady"
    cluster, end = config_of(history.plan), history.zero + WINDOW_S
    gone = list(_gone(history))
    noticed = [lost - died for died, lost, _ in gone]
    return {"goodput": round(goodput_between(history, history.zero, end), 4),
            "predicted": round(_predicted(cluster, [(died, back) for died, _, back in gone], end, seen), 4),
            "down_s": round(median(back - died for died, _, back in gone), 3),
            "noticed_s": round(median(noticed), 3), "noticed_longest_s": round(max(noticed), 3),
            "checkpoint_every": cluster.checkpoint_every}


def _gone(history: History) -> Iterable[tuple[float, float, float]]:
    """When each that was killed died, was lost, and was back as a new process."""
    for span in history.spans:
        if isinstance(span.planned.fault, Kill) and span.injected is not None:
            links = [event for event in history.tape.of(Lost, Hello) if event.t > span.injected
                     and event.learner in span.planned.fault.targets]
            lost, back = (next(event.t for event in links if isinstance(event, kind)) for kind in (Lost, Hello))
            yield span.injected, lost, back


def _predicted(cluster: TrainerConfig, gone: Sequence[tuple[float, float]], end: float, seen: str) -> float:
    """What is left of the window up to `end`. `gone`: when each that was killed died, and was back."""
    gone = [(died, min(back, end)) for died, back in gone if died < end]
    if cluster.mode == "data_parallel":
        still, alone = _union(gone), len(gone) * cluster.coupling.again_s
    elif cluster.mode == "elastic_data_parallel":
        unseen = cluster.coupling.unseen_s if seen == "by_timeout" else 0.0
        still = _union(_standing(gone, unseen, cluster.reconfiguration))
        alone = sum(_length([outage]) - _length(_both(outage, still)) for outage in gone) / LEARNERS
    else:
        still, alone = [], _length(gone) / LEARNERS
    return max(0.0, 1 - (_length([(left, min(right, end)) for left, right in still]) + alone) / WINDOW_S)


def _standing(gone: Sequence[tuple[float, float]], unseen: float, takes: float) -> Iterable[tuple[float, float]]:
    """When an elastic group stands still: until a death is seen, and while another group is formed. Who goes or comes
    meanwhile is part of that."""
    yield from ((died, min(died + unseen, back)) for died, back in gone)
    over = -math.inf
    for change in sorted(t for died, back in gone for t in {min(died + unseen, back), back}):
        if change >= over:
            over = change + takes
            yield change, over


def _union(spans: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    merged: list[tuple[float, float]] = []
    for left, right in sorted(spans):
        if merged and left <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], right)
        else:
            merged.append((left, right))
    return merged


def _both(span: tuple[float, float], others: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    return [(max(span[0], left), min(span[1], right)) for left, right in others if left < span[1] and right > span[0]]


def _length(spans: Iterable[tuple[float, float]]) -> float:
    return sum(right - left for left, right in spans)
