"""Scenarios with many faults at once, for the soak."""

from __future__ import annotations

import random
from collections.abc import Sequence

from diloco_chaos.chaos.scenario.loading import parse
from diloco_chaos.chaos.scenario.plan import freeze
from diloco_chaos.chaos.scenario.problems import ScenarioError

_SCENARIO = """diloco_chaos: 1
name: soak
deadline: 100s
cluster: {{model: micro, corpus: markov, fragments: 4, batch: 4, learners: {learners}, budget: 3000, step_time: 60ms,
          snapshots: 4, heartbeat_timeout: 2s{warm_start}}}
faults:
{faults}
"""
_LEARNERS, _SPARE = ("learner-1", "learner-2", "learner-3"), "learner-4"
_FAULTS: tuple[tuple[str, Sequence[str]], ...] = (
    ("pause: {target}, for: {length}s", (*_LEARNERS, "syncer")),
    ("zombie: {target}, for: {length}s", _LEARNERS),
    ("straggler: {target}, factor: 0.3, spread: 0.2, for: {length}s", _LEARNERS),
    ("kill: {target}, restart_after: {short}s", (*_LEARNERS, "syncer")),
    ("terminate: {target}, restart_after: {short}s", _LEARNERS),
    ("restart: {target}", (*_LEARNERS, "syncer")),
    ("preempt: {target}, beside: 0s, grace: {short}s", _LEARNERS),
    ("crash_loop: {target}", _LEARNERS),
    ("lemon: {target}, after_start: {short}s, for: {length}s", (*_LEARNERS, "syncer")),
    ("lemon: {target}", _LEARNERS),
    (f"replace: {{target}}, with: {_SPARE}", _LEARNERS),
    ("hang: {target}, for: {length}s", (*_LEARNERS, "syncer")),
    ("hang: {target}, in: network, for: {length}s", (*_LEARNERS, "syncer")),
    ("io: {target}, path: '*', hang: true, for: {length}s", (*_LEARNERS, "syncer")),
    ("io: {target}, path: '*', error: ENOSPC, for: {length}s", (*_LEARNERS, "syncer")),
    ("cuda: {target}, error: ecc, for: {length}s", (*_LEARNERS, "syncer")),
    ("kill: {target}, lose_unsynced: true, restart_after: {short}s", ("syncer",)),
    ("cpu_pressure: {target}, workers: 2, for: {length}s", (*_LEARNERS, "syncer")),
    ("memory_pressure: {target}, size: 500MB, for: {length}s", _LEARNERS),
    ("io_pressure: {target}, for: {length}s", _LEARNERS),
    ("corrupt_link: {target}, every: 200kB, for: {length}s", _LEARNERS),
    ("corrupt: syncer", ("syncer",)),
    ("truncate: syncer", ("syncer",)),
    ("write_limit: syncer, for: {length}s", ("syncer",)),
    ("poison: {target}", _LEARNERS),
    ("latency: {target}, profile: transatlantic, for: {length}s", (*_LEARNERS, "syncer")),
    ("bandwidth: {target}, rate: 2MB/s, for: {length}s", _LEARNERS),
    ("slow_close: {target}, for: {length}s", _LEARNERS),
    ("timeout: {target}, toxicity: 0.5, for: {length}s", _LEARNERS),
    ("reset: {target}, toxicity: 0.3, for: {length}s", _LEARNERS),
    ("slicer: {target}, for: {length}s", _LEARNERS),
    ("limit_data: {target}, toxicity: 0.3, for: {length}s", _LEARNERS),
    ("partition: {target}, for: {length}s", (*_LEARNERS, "syncer")),
    ("flapping: {target}, for: {length}s", _LEARNERS),
)
_COUNT = 6  # faults of a run


def drawn(chance: random.Random, reference: bool) -> str:
    """A scenario that may be run, with faults from the steady state on; before it comes a reference, if asked for."""
    warm_start = ", warm_start: 150" if reference else ""
    while True:
        faults = [(template.format(target=chance.choice(targets), length=round(chance.uniform(0.5, 20.0), 2),
                                  short=round(chance.uniform(0.1, 1.0), 2)), round(chance.uniform(0.0, 2.0), 2))
                 for template, targets in chance.sample(_FAULTS, _COUNT)]
        lines = "\n".join(f"  - {{{fault}, at: {at}s}}" for fault, at in faults)
        text = _SCENARIO.format(warm_start=warm_start, faults=lines, learners=len(_LEARNERS) + (_SPARE in lines))
        try:
            freeze(parse(text), 0)
        except ScenarioError:
            continue  # two of them don't go together: draw again
        return text
