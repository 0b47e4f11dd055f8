"""Learners of several generations of hardware: nobody waits for the slower ones, and they count for what they did."""

import numpy as np
import pytest
from pydantic import ValidationError

from diloco_chaos.chaos.evidence.history import History
from diloco_chaos.chaos.exploration.generate import plan_of
from diloco_chaos.chaos.exploration.strategies import scenario
from diloco_chaos.chaos.runner import baselines
from diloco_chaos.chaos.runner.simulate import data_file, initial_values, simulate
from diloco_chaos.harness.record.tape.events import Merge, Step
from diloco_chaos.harness.record.tape.reading import Tape
from diloco_chaos.harness.trainer.config.cluster_config import TrainerConfig
from diloco_chaos.harness.trainer.data_parallel.hub import averaged
from diloco_chaos.harness.trainer.replay.replay import replay
from diloco_chaos.harness.trainer.runtime.replica_factory import replicas


def run(*faults, **cluster):
    usual = {"learners": 4, "budget": "200 steps", "step_time": "60ms", "speeds": [1, 1, 0.5, 0.8]}
    result = simulate(plan_of(scenario(**usual | cluster), list(faults), 0))
    assert result.outcome.kind == "finished", result.outcome.message
    return result


def counts(history):
    return {name: len(history.steps[name, 0]) for name in history.plan.cluster.names}


@pytest.fixture(scope="module")
def mixed():
    return run(variance="10%")


def test_everybody_keeps_its_own_pace(mixed):
    steps = counts(mixed.history)
    for name, speed in (("learner-2", 1.0), ("learner-3", 0.5), ("learner-4", 0.8)):
        assert steps[name] / steps["learner-1"] == pytest.approx(speed, rel=0.05)
    assert mixed.judgement.inconclusive == ""
    assert not mixed.failed


def test_the_quick_ones_make_up_for_the_slow_ones_and_the_budget_is_that_of_all(mixed):
    assert sum(counts(mixed.history).values()) == pytest.approx(4 * 200, abs=8)
    assert mixed.history.end - mixed.history.zero == pytest.approx(mixed.plan.cluster.nominal_s, rel=0.05)


def test_a_slow_learner_weighs_less_in_each_merge(mixed):
    weights = {name: [] for name in mixed.plan.cluster.names}
    for merge in mixed.history.merges[40:]:
        for part in merge.contributions:
            weights[part.learner].append(part.weight)
    mean = {name: sum(values) / len(values) for name, values in weights.items()}
    assert mean["learner-3"] / mean["learner-1"] == pytest.approx(0.5, abs=0.12)
    assert len(weights["learner-3"]) > 0.8 * len(weights["learner-1"])


def test_a_gradient_of_all_takes_as_long_as_the_slowest():
    quick, slow = (run(mode="data_parallel", speeds=speeds).history for speeds in ([], [1, 1, 0.5, 1]))
    assert (slow.end - slow.zero) / (quick.end - quick.zero) == pytest.approx(2.0, rel=0.05)


def test_goodput_counts_a_slow_learners_step_for_the_time_that_it_takes(mixed):
    goodput = next(verdict for verdict in mixed.judgement.checks if verdict.name == "goodput")
    assert goodput.measured.startswith(("98", "99", "100"))


def test_a_slow_learner_that_does_not_keep_its_own_pace_makes_a_run_inconclusive(mixed):
    from diloco_chaos.chaos.checks import judge
    slower = [event for event in mixed.history.tape.events
              if not (isinstance(event, Step) and event.node == "learner-3" and event.step % 5 == 0)]
    reason = judge(History(mixed.plan, Tape(slower), mixed.history.curve)).inconclusive
    assert "learner-3 took" in reason
    assert "nominal is 120 ms" in reason


def test_a_twin_has_learners_that_are_all_alike(mixed):
    bare = mixed.plan.without_faults().cluster
    assert (bare.speeds, bare.variance) == ((), 0.0)


@pytest.mark.parametrize(("settings", "words"), [
    ({"learners": 3, "speeds": [1, 1]}, "2 of them for 3 learners: give one for each"),
    ({"learners": 2, "speeds": [1, 0.01]}, "heartbeat_timeout 3s is too short"),
    ({"learners": 2, "speeds": [1, 0]}, "greater than 0"),
    ({"learners": 2, "variance": 1.5}, "90% at most")])
def test_speeds_that_can_not_be_are_refused(settings, words):
    with pytest.raises(ValueError, match=words):
        TrainerConfig(**settings)


# -- batches of their own ------------------------------------------------------------------------------------------

UNLIKE = {"model": "micro", "corpus": "markov", "learners": 3, "fragments": 4, "budget": "40 steps", "batch": [6, 3, 1]}


def test_whoever_takes_more_in_a_step_weighs_more_by_the_square_of_it():
    history = simulate(plan_of(scenario(**UNLIKE | {"budget": "120 steps"}, step_time="60ms"), [], 0)).history
    merges = [merge for merge in history.tape.of(Merge) if len(merge.contributions) == 3
              and len({part.steps for part in merge.contributions}) == 1]
    assert len(merges) > 20
    for merge in merges:
        tokens, weights = ([getattr(part, name) for part in merge.contributions] for name in ("tokens", "weight"))
        assert [count / tokens[2] for count in tokens] == [6, 3, 1]
        assert [weight / weights[2] for weight in weights] == [36, 9, 1]


@pytest.mark.parametrize("mode", ["decoupled", "data_parallel"])
def test_with_batches_of_their_own_a_run_is_judged_and_done_again_as_any_other(mode):
    kill = {"kill": "learner-1", "at": "500ms", "restart_after": "300ms"}
    result = simulate(plan_of(scenario(**UNLIKE, mode=mode, step_time="60ms", warm_start=8), [kill], 0))
    protocol = {"exactly_once", "weights_correct", "replica_consistency"}
    assert {verdict.verdict for verdict in result.judgement.checks if verdict.name in protocol} == {"passed"}
    cluster, initial = result.plan.cluster, initial_values(result.plan)
    found = replay(cluster, result.history, initial, replicas(cluster, data_file(result.plan), initial))
    assert (found.difference, found.missing) == (None, "")


def test_the_synchronous_run_takes_as_many_tokens_with_the_same_batches():
    plan = plan_of(scenario(**UNLIKE, step_time="60ms"), [], 0)
    assert baselines.synchronous(plan).cluster.batches == (6, 3, 1)
    assert baselines.synchronous(plan).cluster.budget_tokens == plan.cluster.budget_tokens == 40 * 10 * 16


def test_a_mean_gradient_is_the_one_of_all_sequences_whoever_took_them():
    gradients = [{"gradient": np.array([value], np.float32)} for value in (1.0, 2.0, 4.0)]
    assert averaged(gradients, [60, 30, 10])["gradient"] == pytest.approx(1.6)
    assert averaged(gradients, [60, 60, 60])["gradient"] == averaged(gradients)["gradient"]


@pytest.mark.parametrize(("batch", "words"), [
    (0, "a batch of 0: a step takes 1 to 4096 sequences"), ([4, 0, 4, 4], "a batch of 0"),
    ([4, 4], "batch: 2 of them for 4 learners: give one for each, or one number for all"),
    ("many", "a batch of 'many'"), ([], "batch: 0 of them for 4 learners")])
def test_what_is_no_batch_is_refused_in_one_sentence(batch, words):
    with pytest.raises(ValidationError) as refused:
        TrainerConfig(batch=batch)
    error, = refused.value.errors()
    assert words in error["msg"]
