"""Another pace than the scenario's."""

import pytest

from diloco_chaos.chaos.scenario import step_time
from diloco_chaos.chaos.scenario.loading import parse
from diloco_chaos.chaos.scenario.plan import freeze
from diloco_chaos.chaos.scenario.step_time import PaceError, paced


@pytest.fixture
def plan(scenario_text):
    return freeze(parse(scenario_text(learners=4)), 0)


def test_a_pace_can_be_set_and_makes_another_plan_of_it(plan):
    slower = paced(plan, "150ms")
    assert slower.cluster.step_time == 0.15
    assert slower.digest != plan.digest


def test_a_slower_pace_has_as_much_longer_until_the_deadline_and_a_faster_one_no_less(plan):
    more = (0.15 - plan.cluster.step_time) * (plan.cluster.budget - plan.cluster.warm_start)
    assert paced(plan, "150ms").deadline == pytest.approx(plan.deadline + more)
    assert paced(plan, "50ms").deadline == plan.deadline


@pytest.mark.parametrize(("alone", "expected"), [(0.001, 0.06), (0.02, 0.08), (0.035, 0.12), (0.2, 0.68)])
def test_auto_leaves_two_fifths_of_the_machine_free_and_is_never_faster_than_the_scenario(plan, monkeypatch, alone,
                                                                                          expected):
    monkeypatch.setattr(step_time.os, "sched_getaffinity", lambda _: {0, 1})
    monkeypatch.setattr(type(plan.trainer), "calibrated", lambda *_: alone)
    assert paced(plan, "auto").cluster.step_time == pytest.approx(expected)


def test_auto_really_measures(plan):
    assert paced(plan, "auto").cluster.step_time >= plan.cluster.step_time


@pytest.mark.parametrize(("text", "why"), [("5", "not a duration"), ("0s", "more than 0s"), ("3s", "heartbeat_timeout"),
                                           ("-1s", "not a duration"), ("quick", "not a duration")])
def test_a_pace_that_cannot_be_is_told(plan, text, why):
    with pytest.raises(PaceError, match=why):
        paced(plan, text)
