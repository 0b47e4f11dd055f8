"""How long training stands still when the most advanced learner dies: of unequal ones, or of alike ones when all others
were slow for a while. The later it dies, the further ahead it is; nobody must wait for how far it was."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from diloco_chaos.chaos.evidence.history import History
from diloco_chaos.chaos.runner.run import Result
from diloco_chaos.chaos.scenario.loading import load
from diloco_chaos.chaos.scenario.model import Scenario
from diloco_chaos.chaos.scenario.plan import Plan, freeze

QUORUMS, TIMES_S = (1, 2, 3), (15, 30, 60)
_AFTER_S = 10
"""Seconds of training after the death."""
_OVER_S = 20.5
"""When the others are as quick as ever again."""


def measure(perform: Callable[[Plan], Result], say: Callable[[str], None]) -> dict[str, Any]:
    """Per quorum, moment and whether the leader is started again, and after the others were slow: the longest gap
    between merges from its death on, as a multiple of the 99th percentile before any fault."""
    plans = {f"quorum_{quorum}_at_{at}_s" + ("_restarted" if restart else ""): planned(quorum, at, restart)
             for quorum in QUORUMS for at in TIMES_S for restart in (None, "2s")}
    plans |= {f"quorum_{quorum}_after_the_others_were_slow": after_a_straggle(quorum) for quorum in QUORUMS}
    results = {}
    for name, plan in plans.items():
        results[name] = gaps(perform(plan).history)
        say(f"  leader, {name}: {results[name]}")
    return results | {"worst_ratio": max(of["ratio"] for of in results.values())}


def planned(quorum: int, at: float, restart: str | None) -> Plan:
    """Scenario `leader-dies` with another quorum, another moment, and perhaps a return."""
    return _planned(quorum, at, {"kill": "learner-1", "at": f"{at}s"} | ({"restart_after": restart} if restart else {}))


def after_a_straggle(quorum: int) -> Plan:
    """All learners are alike; all but one are slow for ten seconds, and when they no longer are, that one dies."""
    slow = {"straggler": ["learner-2", "learner-3", "learner-4"], "at": "10s", "for": "10s", "factor": 0.25}
    return _planned(quorum, _OVER_S, slow, {"kill": "learner-1", "at": f"{_OVER_S}s"}, speeds=[])


def _planned(quorum: int, at: float, *faults: dict[str, Any], **changes: Any) -> Plan:
    scenario = load("leader-dies")[0]
    document = scenario.model_dump(mode="json", by_alias=True)
    steps = round((at + _AFTER_S) / scenario.cluster.step_time)
    document["cluster"] |= {"quorum": quorum, "budget": steps, "warmup": steps // 8} | changes
    document["deadline"] = f"{3 * (at + _AFTER_S)}s"
    return freeze(Scenario.model_validate(document | {"faults": faults}), 0)


def gaps(history: History) -> dict[str, float]:
    """The longest gap from the last fault on, and the 99th percentile of those before the first."""
    usual = sorted(history.gaps(history.zero or 0.0, history.first_fault)[1:-1])
    p99 = usual[int(0.99 * (len(usual) - 1))]
    death = max(span.injected for span in history.spans if span.injected is not None)
    before = max((merge.t for merge in history.merges if merge.t < death), default=0.0)
    longest = max(history.gaps(before, history.end)[:-1])
    return {"longest_gap_s": round(longest, 3), "fault_free_p99_gap_s": round(p99, 3), "ratio": round(longest / p99, 2)}
