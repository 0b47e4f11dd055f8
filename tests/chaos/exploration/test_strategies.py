"""Schedules for property tests: they make sense, they hold, and a failing one can be repeated."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarks.measure.planted import PLANTED
from diloco_chaos.chaos.exploration.generate import known, plan_of
from diloco_chaos.chaos.exploration.shrink import shrunk
from diloco_chaos.chaos.exploration.strategies import Schedule, assert_holds, explain, plans, run, scenario, written
from diloco_chaos.chaos.scenario.loading import parse
from diloco_chaos.chaos.scenario.plan import freeze
from diloco_chaos.chaos.scenario.warnings import warnings_of

QUICK = settings(max_examples=25)


@given(plan=plans(max_faults=3))
@QUICK
def test_a_drawn_plan_holds(plan):
    assert_holds(run(plan))


@given(plan=plans(learners=2, faults=["kill", "pause"], max_faults=4))
@QUICK
def test_a_drawn_plan_has_only_what_was_asked_for_and_is_written_as_it_is(plan):
    assert {planned.fault.kind for planned in plan.faults} <= {"kill", "pause"}
    assert len(plan.faults) <= 4
    assert plan.cluster.learners == 2
    warnings_of(plan.trainer, [planned.fault for planned in plan.faults])
    again = freeze(parse(written(plan)), plan.seed)
    assert again.faults == plan.faults
    assert again.cluster == plan.cluster


@pytest.mark.parametrize("cluster", ["budget: 1200, warmup: 120", "budget: 1200", "warmup: 180", "mode: diloco",
                                     "mode: data_parallel, warmup: 0"])
def test_a_plan_is_written_with_the_warm_up_that_it_has_whatever_is_the_default(cluster):
    plan = freeze(parse(f"diloco_chaos: 1\nname: x\ncluster: {{{cluster}}}\n"), 0)
    assert freeze(parse(written(plan)), 0).cluster == plan.cluster


class Small(Schedule):
    most = 2


Small.TestCase.settings = settings(max_examples=5, stateful_step_count=3,
                                   suppress_health_check=list(HealthCheck))
TestSchedule = Small.TestCase


def test_a_broken_promise_is_told_with_a_file_that_repeats_it(monkeypatch):
    PLANTED["double_merge"](monkeypatch)
    hold = {"node": "syncer", "failpoint": "commit.before_broadcast", "count": 30}
    result = run(plan_of(scenario(anchor="base"), [{"kill": "syncer", "when": hold, "restart_after": "200ms"}], 0))
    assert "exactly_once" in result.failed
    with pytest.raises(AssertionError, match="exactly_once"):
        assert_holds(result)
    words = explain(result)
    assert "diloco-chaos run found.yaml --on simulated" in words
    assert "- kill: syncer" in words


def test_kinds_that_can_not_be_drawn_are_named():
    with pytest.raises(ValueError, match="'kil' is no fault"):
        known(["kil"])
    with pytest.raises(ValueError, match="'storm' can't be drawn"):
        known(["storm"])


@given(st.lists(st.sampled_from("abcdef"), min_size=1, max_size=8, unique=True))
def test_shrinking_ends_with_what_is_needed_and_nothing_else(names):
    faults = [{name: "syncer", "at": "5s"} for name in names]
    needed = set(names[:2])
    small = shrunk(faults, lambda candidate: needed <= {next(iter(fault)) for fault in candidate})
    assert {next(iter(fault)) for fault in small} == needed


def test_who_waited_for_a_fault_that_is_left_out_comes_by_itself():
    faults = [{"kill": "learner-1", "at": "2s"}, {"pause": "learner-2", "after": {"fault": "f1", "wait": "1s"}}]
    small = shrunk(faults, lambda candidate: any("pause" in fault for fault in candidate))
    assert small == [{"pause": "learner-2", "at": "5s"}]


def test_one_member_of_a_domain_is_tried_in_its_place():
    def small(*needed):
        return shrunk([{"kill": "domain rack-1", "at": "2s"}],
                      lambda candidate: bool(candidate) and candidate[0]["kill"] in needed,
                      members={"domain rack-1": ["learner-1", "learner-2"]})
    assert small("domain rack-1", "learner-2") == [{"kill": "learner-2", "at": "2s"}]
    assert small("domain rack-1") == [{"kill": "domain rack-1", "at": "2s"}]
