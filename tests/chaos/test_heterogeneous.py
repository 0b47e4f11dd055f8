"""Learners of several generations of hardware: nobody waits for the slower ones, and they count for what they did."""

import pytest

from chaos.generate import plan_of
from chaos.history import History
from chaos.simulate import simulate
from chaos.strategies import scenario
from harness.tape import Event, Tape
from harness.trainer.config import TrainerConfig


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
        for part in merge["contributions"]:
            weights[part["learner"]].append(part["weight"])
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
    from chaos.checks import judge
    slower = [Event(event.t, event.node, event.incarnation, event.event, event.fields) for event in
              mixed.history.tape.events if not (event.event == "step" and event.node == "learner-3"
                                                and event["step"] % 5 == 0)]
    reason = judge(History(mixed.plan, Tape(slower), mixed.history.curve)).inconclusive
    assert "learner-3 took" in reason
    assert "nominal is 120 ms" in reason


def test_a_twin_has_learners_that_are_all_alike(mixed):
    twin = mixed.plan.without_faults().cluster
    assert (twin.speeds, twin.variance) == ((), 0.0)


@pytest.mark.parametrize(("settings", "words"), [
    ({"learners": 3, "speeds": [1, 1]}, "2 of them for 3 learners: give one for each"),
    ({"learners": 2, "speeds": [1, 0.01]}, "silence 3s is too short"),
    ({"learners": 2, "speeds": [1, 0]}, "greater than 0"),
    ({"learners": 2, "variance": 1.5}, "90% at most")])
def test_speeds_that_can_not_be_are_refused(settings, words):
    with pytest.raises(ValueError, match=words):
        TrainerConfig(**settings)
