"""The same frozen plan gives the same verdicts as processes and in containers."""

import pytest

from chaos.report.live import NullAudience
from chaos.runner import backends
from chaos.runner.run import run_plan
from chaos.scenario.loading import parse
from chaos.scenario.plan import freeze

SMALL = """diloco_chaos: 1
name: both
deadline: 90s
cluster: {{model: micro, corpus: markov, fragments: 4, batch: 4, learners: 3, budget: 220, step_time: 60ms,
          snapshots: 4, heartbeat_timeout: 2s}}
checks: {{reintegration: {{within: 8s}}, no_global_stall: {{max_gap: 5s}}}}
faults:
  - {fault}
"""

PLANS = {
    "killed-mid-upload":
        "{kill: learner-1, when: {node: learner-1, failpoint: upload.half, count: 40}, restart_after: 1s}",
    "cut-off": "{partition: learner-2, at: 3s, for: 2s}",
    "syncer-killed": "{kill: syncer, at: 3s, restart_after: 1s}",
}


def judged(plan, folder, place):
    """The run; once more if the machine had so much else to do that a check could not tell."""
    result = run_plan(plan, folder / place.name, NullAudience(), place)
    untold = any(check.verdict == "unknown" for check in result.judgement.checks)
    return run_plan(plan, folder / place.name, NullAudience(), place) if untold else result


@pytest.mark.parametrize("name", PLANS)
def test_a_plan_gives_the_same_verdicts_as_processes_and_in_containers(engine_there, tmp_path, name):
    plan = freeze(parse(SMALL.format(fault=PLANS[name])), 0)
    verdicts = {}
    for place in (backends.local(), backends.compose()):
        result = judged(plan, tmp_path, place)
        assert result.folder.plan().digest == plan.digest
        verdicts[place.name] = {check.name: check.verdict for check in result.judgement.checks}
    assert verdicts["local"] == verdicts["compose"]
    assert set(verdicts["local"].values()) == {"passed"}


@pytest.mark.parametrize("mode", ["streaming", "diloco", "data_parallel", "elastic_data_parallel"])
def test_the_rivals_are_broken_alike_as_processes_in_containers_and_under_virtual_time(engine_there, tmp_path, mode):
    plan = freeze(parse(SMALL.format(fault=PLANS["killed-mid-upload"]).replace(
        "model: micro", f"mode: {mode}, model: micro")), 0)
    verdicts = {}
    for place in (backends.simulated(), backends.local(), backends.compose()):
        result = judged(plan, tmp_path, place)
        assert result.outcome.kind == "finished", result.outcome.message
        verdicts[place.name] = {check.name: check.verdict for check in result.judgement.checks}
    assert verdicts["local"] == verdicts["compose"] == verdicts["simulated"]
    others_pay = {name: verdict for name, verdict in verdicts["local"].items() if verdict != "passed"}
    assert others_pay == {"blast_radius": "failed"}
