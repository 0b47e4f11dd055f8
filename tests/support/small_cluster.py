"""A small run of the built-in trainer, for places to be held against each other."""

from diloco_chaos.chaos.report.live import NullAudience
from diloco_chaos.chaos.runner.run import run_plan

SMALL = """diloco_chaos: 1
name: both
deadline: 90s
cluster: {{model: micro, corpus: markov, fragments: 4, batch: 4, learners: 3, budget: {budget}, step_time: 60ms,
          snapshots: 4, heartbeat_timeout: 2s}}
checks: {{reintegration: {{within: 8s}}, no_global_stall: {{max_gap: 5s}}}}
faults:
{faults}
"""

OF_PACE = {"no_global_stall", "self_healing", "reintegration", "blast_radius", "uptime", "goodput"}
"""Checks that a machine with other things to do may leave without an answer."""


def judged(plan, folder, place):
    """The run; once more if the machine had so much else to do that a check could not tell."""
    result = run_plan(plan, folder / place.name, NullAudience(), place)
    untold = any(check.verdict == "unknown" for check in result.judgement.checks)
    return run_plan(plan, folder / place.name, NullAudience(), place) if untold else result
