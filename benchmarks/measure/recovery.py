"""How punctual faults are, and how long a killed learner is missed: detection, restart, reintegration."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from statistics import median
from typing import Any

from diloco_chaos.chaos.evidence.history import History
from diloco_chaos.chaos.runner.run import Result
from diloco_chaos.chaos.scenario.loading import parse
from diloco_chaos.chaos.scenario.model import COORDINATOR
from diloco_chaos.chaos.scenario.plan import Plan, freeze
from diloco_chaos.harness.record.tape.events import Exit, Injected, Injecting, Lost, Merge, Spawn
from diloco_chaos.harness.record.tape.reading import Tape

RESTART_AFTER_S = 0.5
_KILLS_PER_RUN = 10
_EVERY_S = 4.0
_MOMENTS = ("confirmed", "merged_on", "detected", "restarted", "reintegrated")

HEAD = """diloco_chaos: 1
name: bench-recovery
deadline: 150s
cluster: {{budget: {budget} steps, step_time: 100ms}}
checks: {{no_global_stall: {{max_gap: 10s}}, uptime: {{at_least: 0%}}, goodput: {{at_least: 0%}}}}
faults:
"""


def plan(seed: int) -> Plan:
    """Ten kills at set times, each learner in turn, and thirty pauses at counted events, too short to matter."""
    kills = [f"  - {{kill: learner-{number % 4 + 1}, at: {4 + _EVERY_S * number}s, "
             f"restart_after: {RESTART_AFTER_S}s}}\n" for number in range(_KILLS_PER_RUN)]
    pauses = [f"  - {{pause: syncer, when: {{node: syncer, event: merge, count: {40 + 17 * number}}}, for: 1ms}}\n"
              for number in range(30)]
    return freeze(parse(HEAD.format(budget=600) + "".join(kills + pauses)), seed)


def measure(perform: Callable[[Plan], Result], kills: int) -> dict[str, Any]:
    """Runs of ten kills each, until there are as many as asked for."""
    late: dict[str, list[float]] = {"at": [], "event": []}
    took: dict[str, list[float]] = {name: [] for name in _MOMENTS}
    for seed in range(-(-kills // _KILLS_PER_RUN)):
        history = perform(plan(seed)).history
        due = {event.fault: event.t if event.due is None else event.due
               for event in history.tape.of(Injecting, node="harness")}
        for event in history.tape.of(Injected, node="harness"):  # when it was done, not when it was begun
            planned = next(candidate for candidate in history.plan.faults if candidate.id == event.fault)
            late["at" if planned.fault.at is not None else "event"].append(event.t - due[event.fault])
        for name, values in _recoveries(history).items():
            took[name] += values
    return {"late_s": {name: spread(values) for name, values in late.items()},
            "kill_to": {"confirmed_s": spread(took["confirmed"]), "next_merge_s": spread(took["merged_on"]),
                        "detected_s": spread(took["detected"]),
                        "restarted_beyond_the_policy_s": spread([t - RESTART_AFTER_S for t in took["restarted"]])},
            "start_to_reintegrated_s": spread(took["reintegrated"])}


def _recoveries(history: History) -> dict[str, list[float]]:
    """For every kill: to the end that was seen, to the survivors' next merge after it, to the syncer's `lost`, to the
    next start; from there to the first merged contribution."""
    seconds: dict[str, list[float]] = {name: [] for name in _MOMENTS}
    for span in history.spans:
        if span.planned.fault.kind != "kill" or span.injected is None:
            continue
        start, target = span.injected, span.planned.fault.targets[0]
        lost = next(event.t for event in history.tape.of(Lost, node=COORDINATOR)
                    if event.learner == target and event.t > start - 0.1)
        spawn = next(event for event in history.tape.of(Spawn, node="harness")
                     if event.target == target and event.t > start)
        new = (target, spawn.incarnation)
        merged = next(merge.t for merge in history.merges
                      if any((part.learner, part.incarnation) == new for part in merge.contributions))
        gone = next(event.t for event in history.tape.of(Exit, node="harness")
                    if event.target == target and event.t > start)
        seconds["confirmed"].append(gone - start)
        seconds["merged_on"].append(next(merge.t for merge in history.merges if merge.t > gone) - start)
        seconds["detected"].append(lost - start)
        seconds["restarted"].append(spawn.t - start)
        seconds["reintegrated"].append(merged - spawn.t)
    return seconds


def reintegrations(tape: Tape, merges: Iterable[Merge]) -> list[float]:
    """Return the seconds from the start of each replacement to the first merge with its contribution."""
    took = []
    for spawn in tape.of(Spawn, node="harness"):
        if spawn.incarnation:
            took += [merge.t - spawn.t for merge in merges if merge.t > spawn.t and any(
                part.learner == spawn.target and part.incarnation == spawn.incarnation
                for part in merge.contributions)][:1]
    return took


def spread(values: list[float]) -> dict[str, Any]:
    """Median, p99 and longest of some times, in seconds."""
    ordered = sorted(values)
    return {"n": len(ordered), "median": round(median(ordered), 4),
            "p99": round(ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))], 4), "longest": round(ordered[-1], 4)}
