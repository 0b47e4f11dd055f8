"""Memory that fails and learners that lie, in whole simulated runs: observed, healed from, and the same again."""

import pytest

from diloco_chaos.chaos.checks import judge
from diloco_chaos.chaos.evidence.history import History
from diloco_chaos.chaos.exploration.generate import plan_of
from diloco_chaos.chaos.exploration.strategies import scenario
from diloco_chaos.chaos.runner.simulate import initial_values, simulate
from diloco_chaos.harness.record.tape.events import Corrupted, Merge, Reset, Step
from diloco_chaos.harness.record.tape.reading import Tape
from diloco_chaos.harness.trainer.replay.replay import replay
from diloco_chaos.harness.trainer.runtime.replica_factory import replicas

USUAL = {"model": "quadratic", "learners": 3, "budget": "200 steps", "step_time": "60ms"}


def run(fault, seed=0, **cluster):
    result = simulate(plan_of(scenario(**USUAL | cluster), [fault], seed))
    assert result.outcome.kind == "finished", result.outcome.message
    return result


def verdicts(result):
    return {verdict.name: verdict.verdict for verdict in result.judgement.checks}


def same_again(result):
    plan = result.plan
    initial = initial_values(plan)
    return replay(plan.cluster, result.history, initial, replicas(plan.cluster, None, initial))


@pytest.mark.parametrize("settings", [{"on_receipt": "overwrite"}, {"mode": "streaming"}, {"recovery": "peer"}],
                         ids=["overwrite", "streaming", "peer"])
@pytest.mark.parametrize("fault", [
    {"content": "nan", "at": "4s"}, {"content": "bits", "values": 300, "at": "4s"},
    {"content": "nan", "when": {"node": "learner-1", "failpoint": "upload.half", "count": 20}}],
                         ids=["nan", "bits", "failpoint"])
def test_a_learner_whose_memory_fails_counts_again_and_costs_nobody_else_anything(fault, settings):
    result = run({"corrupt_memory": "learner-1", **fault}, seed=1, **settings)
    assert not result.failed
    assert verdicts(result)["faults_verified"] == verdicts(result)["reintegration"] == "passed"
    assert result.history.tape.of(Reset)
    assert result.history.final.loss < 2


def test_a_run_in_which_memory_failed_is_the_same_again_bit_for_bit():
    for content in ("nan", "bits"):
        again = same_again(run({"corrupt_memory": "learner-2", "content": content, "values": 300, "at": "4s"}))
        assert (again.difference, again.missing) == (None, "")


def test_a_learner_that_is_never_merged_from_again_has_not_recovered():
    history = run({"corrupt_memory": "learner-1", "at": "3s"}, budget="400 steps").history
    (hit,) = history.tape.of(Corrupted)
    for merge in history.tape.of(Merge):
        if merge.t > hit.t:
            merge.contributions = [part for part in merge.contributions if part.learner != "learner-1"]
    verdict = next(one for one in judge(History(history.plan, history.tape)).checks if one.name == "reintegration")
    assert (verdict.verdict, verdict.measured) == ("failed", "never")


def test_recovery_is_unknown_where_memory_never_failed():
    history = run({"corrupt_memory": "learner-1", "at": "3s"}).history
    tape = Tape([event for event in history.tape.events if event.event != "corrupted"])
    found = {one.name: one.verdict for one in judge(History(history.plan, tape)).checks}
    assert found["reintegration"] == found["faults_verified"] == "unknown"


@pytest.mark.parametrize("about", ["step", "tokens", "position", "version"])
def test_a_lie_moves_nothing(about):
    result = run({"lie": "learner-1", "about": about, "at": "3s"})
    quiet = simulate(plan_of(scenario(**USUAL), [], 0)).history
    assert not result.failed
    assert verdicts(result)["faults_verified"] == "passed"
    assert result.history.end == pytest.approx(quiet.end, rel=0.05)
    assert max(merge.step for merge in result.history.merges) <= 205
    assert max(event.position for event in result.history.tape.of(Step)) < 400
