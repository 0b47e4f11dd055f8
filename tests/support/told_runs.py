"""Runs of workers that are commands, and tell their rounds in lines `ROUND VALUE`."""

from __future__ import annotations

import json
from functools import cache

from diloco_chaos.chaos.evidence.history import History
from diloco_chaos.chaos.scenario.loading import parse
from diloco_chaos.chaos.scenario.plan import freeze
from diloco_chaos.harness.record.tape.reading import Tape
from recorded_events import an_event


@cache
def told_plan(value, checks, shared, workers, **trainer):
    """The plan of a run with a pause, or with these `faults`; `value`: the group that stands for what a line tells
    beside the round; `trainer`: more of its settings."""
    faults = trainer.pop("faults", "[{pause: w-1, at: 5s, for: 1s}]")
    trainer |= {"kind": "commands", "rounds": 999, "shared": shared,
               "nodes": {"w": {"run": "python3 -c 1", "worker": True, "count": workers}},
               "progress": [{"node": "w", "log": rf"(?P<round>\d+) {value}"}]}
    return freeze(parse(f"diloco_chaos: 1\nname: x\ntrainer: {json.dumps(trainer)}\nchecks: {checks}\n"
                        f"faults: {faults}\n"), 0)


def told_run(steps, value, checks, shared, workers, fault=5.0, **trainer):
    """A run of that plan in which these steps were told, and a fault came at that second."""
    injected = [an_event(fault, "harness", 0, name, {"fault": "f1"}) for name in ("injecting", "injected")]
    tape = Tape(sorted([*steps, *injected], key=lambda event: event.t))
    return History(told_plan(value, checks, shared, workers, **trainer), tape)
