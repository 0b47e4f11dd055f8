"""The rivals under the same faults: whole runs under virtual time, in which what is blocked must go on."""

import pytest
from pydantic import ValidationError

from diloco_chaos.chaos.exploration.generate import plan_of
from diloco_chaos.chaos.exploration.strategies import scenario
from diloco_chaos.chaos.runner.simulate import simulate
from diloco_chaos.harness.record.tape.events import Step
from diloco_chaos.harness.trainer.config.cluster_config import TrainerConfig

MODES = [{"mode": "decoupled"}, {"mode": "streaming"}, {"mode": "diloco"}]
modes = pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode["mode"])
PROTOCOL = {"exactly_once", "replica_consistency", "weights_correct", "processed_correct", "learning_rate_correct",
            "quorum_respected", "staleness_bounded"}


def performed(mode, *faults):
    result = simulate(plan_of(scenario(**mode, learners=3, budget="100 steps", step_time="60ms"), list(faults), 0))
    assert result.outcome.kind == "finished", result.outcome.message
    verdicts = {verdict.name: verdict.verdict for verdict in result.judgement.checks}
    assert {name: verdicts[name] for name in PROTOCOL} == dict.fromkeys(PROTOCOL, "passed")
    return result


@modes
@pytest.mark.parametrize("point", ["merge.before_commit", "checkpoint.before_rename", "commit.before_broadcast"])
@pytest.mark.parametrize("count", range(20, 26))
def test_a_syncer_that_dies_between_two_merges_of_a_round_is_gone_on_from(mode, point, count):
    performed(mode, {"kill": "syncer", "when": {"node": "syncer", "failpoint": point, "count": count},
                     "restart_after": "200ms"})


@modes
@pytest.mark.parametrize("count", range(20, 26))
def test_a_learner_that_dies_in_the_middle_of_an_upload_comes_back_into_the_round(mode, count):
    performed(mode, {"kill": "learner-2", "when": {"node": "learner-2", "failpoint": "upload.half", "count": count},
                     "restart_after": "300ms"})


def test_a_dead_learner_costs_the_others_nothing_only_where_nobody_waits_for_it():
    made = {}
    for mode in MODES:
        history = performed(mode, {"kill": "learner-2", "at": "1s", "restart_after": "3s"}).history
        dead = history.spans[0]
        made[mode["mode"]] = sum(dead.injected < event.t < dead.injected + 3 for event in history.tape.of(
            Step, node="learner-1"))
    assert made["decoupled"] >= 48  # 3 s at 60 ms a step
    assert made["streaming"] <= 10  # H and tau
    assert made["diloco"] <= 8


def test_what_a_mode_implies_is_not_held_against_who_did_not_write_it():
    with pytest.raises(ValidationError) as wrong:
        TrainerConfig.model_validate({"mode": "diloco", "learners": "x", "gradients": "int5"})
    assert {error["loc"][0] for error in wrong.value.errors()} == {"learners", "gradients"}
    with pytest.raises(ValidationError, match="mode diloco means quorum 3: leave quorum out"):
        TrainerConfig.model_validate({"mode": "diloco", "learners": 3, "quorum": 2})
