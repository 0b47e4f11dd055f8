"""Phases of recoveries under virtual time, held against the tape's own events, which are read here by simple rules that
share no code with `chaos.evidence.phases`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random
from typing import Any

from diloco_chaos.chaos.evidence.phases import (
    EXCLUDED,
    FIRST_ROUND,
    MADE_GOOD,
    NOTICED,
    READY,
    RESTARTED,
    Recovery,
    recoveries,
)
from diloco_chaos.chaos.runner.simulate import simulate
from diloco_chaos.chaos.scenario.loading import parse
from diloco_chaos.chaos.scenario.plan import Plan, freeze
from diloco_chaos.harness.record.tape.events import Event

BAR_S = 0.02
SCENARIO = """diloco_chaos: 1
name: bench-phases
deadline: 90s
cluster: {{model: quadratic, learners: 4, quorum: 1, budget: 300 steps, step_time: 100ms}}
checks: {{no_global_stall: {{max_gap: 10s}}}}
faults:
  - {{kill: learner-{one}, at: {first:.2f}s, restart_after: 1s}}
  - {{kill: learner-{other}, at: {second:.2f}s, restart_after: 2s}}
"""


def plan(seed: int) -> Plan:
    """Two kills, of learners and at moments that the seed chooses."""
    draw = Random(seed)
    return freeze(parse(SCENARIO.format(one=draw.randint(1, 4), first=draw.uniform(3, 5), other=draw.randint(1, 4),
                                        second=draw.uniform(12, 14))), seed)


def measure(runs: int, say: Callable[[str], None]) -> dict[str, Any]:
    """The largest difference of each phase, over all recoveries of so many runs."""
    apart: dict[str, list[float]] = {}
    told_by_one = followed = 0
    for seed in range(runs):
        history = simulate(plan(seed)).history
        events = list(history.tape.events)
        for recovery in recoveries(history):
            followed += 1
            read, told = by_events(events, recovery), {phase.name: phase.t for phase in recovery.phases}
            for name, t in read.items():
                its = told[name]
                if t is None or its is None:
                    told_by_one += (t is None) != (its is None)
                else:
                    apart.setdefault(name, []).append(abs(its - t))
    worst = {name: round(max(values), 4) for name, values in apart.items()}
    say(f"  phases of {followed} recoveries: {worst}, told by one side alone: {told_by_one}")
    return {"runs": runs, "recoveries": followed, "bar_s": BAR_S, "largest_s": worst,
            "phases": {name: len(values) for name, values in apart.items()}, "told_by_one_side": told_by_one,
            "met": not told_by_one and all(value <= BAR_S for value in worst.values())}


def by_events(events: Sequence[Event], recovery: Recovery) -> Mapping[str, float | None]:
    """Return when each phase of a killed learner ended, by the first event that says so; None: there is none."""
    began, target = recovery.span.began, recovery.target

    def after(name: str, t: float, **fields: Any) -> Iterator[Event]:
        return (event for event in events if event.event == name and event.t >= t
                and all(getattr(event, key) == value for key, value in fields.items()))

    def first(found: Iterator[Event]) -> float | None:
        return next((event.t for event in found), None)
    spawn: Any = next(after("spawn", began, target=target))
    merges: list[Any] = list(after("merge", began))
    back = next((merge.t for merge in merges for part in merge.contributions
                 if (part.learner, part.incarnation) == (target, spawn.incarnation)), None)
    without = next((merge.t for merge in merges if target not in merge.asked
                    and (back is None or merge.t < back)), None)
    steps = [event.t for event in after("step", began, node=target, inc=spawn.incarnation)]
    lost = recovery.lost_steps or 0
    return {NOTICED: first(after("lost", began, learner=target)), EXCLUDED: without, RESTARTED: spawn.t,
            READY: first(after("ready", began, node=target, inc=spawn.incarnation)), FIRST_ROUND: back,
            MADE_GOOD: steps[lost - 1] if 0 < lost <= len(steps) else None}
