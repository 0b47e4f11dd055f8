"""The same frozen plan gives the same verdicts as processes and in containers. Each verdict is one of pace: these tests
run alone."""

import pytest

from diloco_chaos.chaos.runner import backends
from diloco_chaos.chaos.scenario.loading import parse
from diloco_chaos.chaos.scenario.plan import freeze
from small_cluster import OF_PACE, SMALL, judged

KILLED_MID_UPLOAD = "- {kill: learner-1, when: {node: learner-1, failpoint: upload.half, count: 40}, restart_after: 1s}"
AND_MORE = KILLED_MID_UPLOAD + """
- {partition: learner-2, at: 8s, for: 2s}
- {kill: syncer, at: 13s, restart_after: 1s}"""


def test_a_plan_gives_the_same_verdicts_as_processes_and_in_containers(engine_there, tmp_path):
    plan = freeze(parse(SMALL.format(faults=AND_MORE, budget=320)), 0)
    verdicts = {}
    for place in (backends.named("local"), backends.named("compose")):
        result = judged(plan, tmp_path, place)
        assert result.folder.plan().digest == plan.digest
        verdicts[place.name] = {check.name: check.verdict for check in result.judgement.checks}
    assert verdicts["local"] == verdicts["compose"]
    assert set(verdicts["local"].values()) == {"passed"}


@pytest.mark.parametrize("mode", ["streaming", "diloco", "data_parallel", "elastic_data_parallel"])
def test_the_rivals_are_broken_alike_as_processes_in_containers_and_under_virtual_time(engine_there, tmp_path, mode):
    # Everybody waits for who was killed: for as long as a process takes to load torch, 5 s on the slowest machine seen,
    # of 12 s in which training would be over.
    plan = freeze(parse(SMALL.format(faults=KILLED_MID_UPLOAD, budget=160).replace(
        "model: micro", f"mode: {mode}, model: micro").replace("max_gap: 5s}", "max_gap: 8s}, goodput: {at_least: 45%}")
    ), 0)
    verdicts = {}
    for place in (backends.named("simulated"), backends.named("local"), backends.named("compose")):
        result = judged(plan, tmp_path, place)
        assert result.outcome.kind == "finished", result.outcome.message
        verdicts[place.name] = {check.name: check.verdict for check in result.judgement.checks}
    others_pay = {name: verdict for name, verdict in verdicts["simulated"].items() if verdict != "passed"}
    assert others_pay == {"blast_radius": "failed"}
    for place in ("local", "compose"):
        untold = {name for name, verdict in verdicts[place].items() if verdict == "unknown"}
        assert untold <= OF_PACE, verdicts[place]
        assert verdicts[place] == verdicts["simulated"] | dict.fromkeys(untold, "unknown")
