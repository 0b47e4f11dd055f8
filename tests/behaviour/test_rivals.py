"""Data parallelism, rigid and elastic, under the same faults: whole runs under virtual time."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from diloco_chaos.chaos.evidence.accounting.token_accounting import MERGED
from diloco_chaos.chaos.evidence.traffic import crossed
from diloco_chaos.chaos.exploration.generate import plan_of
from diloco_chaos.chaos.exploration.strategies import plans, scenario
from diloco_chaos.chaos.runner.baselines import synchronous
from diloco_chaos.chaos.runner.simulate import performed, simulate
from diloco_chaos.harness.record.tape.events import Disconnected, Grouped, Lost, RolledBack

MODES = ["data_parallel", "elastic_data_parallel"]
modes = pytest.mark.parametrize("mode", MODES)
KILL = {"kill": "learner-2", "at": "2s", "restart_after": "1s"}


def plan(mode, *faults, **cluster):
    usual = {"learners": 3, "budget": "100 steps", "step_time": "60ms", "checkpoint_every": 10}
    return plan_of(scenario(mode=mode, **usual | cluster), list(faults), 0)


def last_values(a_plan):
    """The weights in the run's last snapshot."""
    done = performed(a_plan)
    assert done.outcome.kind == "finished", done.outcome.message
    return max(done.snapshots, key=lambda snapshot: snapshot[1]["number"])[0]


def same(left, right):
    return left.keys() == right.keys() and all(np.array_equal(left[name], right[name]) for name in left)


@pytest.mark.parametrize("faults", [
    [KILL], [KILL | {"at": "3s"}, {"kill": "learner-1", "at": "3200ms", "restart_after": "100ms"}],
    [{"kill": "syncer", "at": "2500ms", "restart_after": "500ms"}],
    [{"partition": "learner-3", "at": "1s", "for": "1s"}],
    [{"pause": "learner-1", "at": "1s", "for": "5s"}], [{"reset": "learner-1", "at": "1s", "for": "1s"}],
    [{"kill": "syncer", "when": {"node": "syncer", "failpoint": "checkpoint.before_rename", "count": 2},
      "restart_after": "1s"}]], ids=str)
def test_data_parallelism_ends_with_the_very_weights_of_a_run_that_nothing_happened_to(faults):
    assert same(last_values(plan("data_parallel", *faults)), last_values(plan("data_parallel")))


BFLOAT16 = {"gradients": "bfloat16", "broadcasts": "bfloat16"}


@pytest.mark.parametrize("ways", [BFLOAT16, {"gradients": "bfloat16"}, {"broadcasts": "bfloat16"}], ids=str)
def test_so_it_does_where_gradients_travel_as_bfloat16_which_is_not_the_same_run(ways):
    broken, whole = (last_values(plan("data_parallel", *faults, **ways)) for faults in ([KILL], []))
    assert same(broken, whole)
    assert not same(whole, last_values(plan("data_parallel")))
    for name, exact in last_values(plan("data_parallel")).items():
        np.testing.assert_allclose(whole[name], exact, rtol=0.02, atol=0.02)


@modes
def test_bfloat16_halves_what_gradients_take_both_ways(mode):
    real = {"model": "micro", "corpus": "markov", "batch": 1, "budget": "40 steps", "checkpoint_every": 39}
    whole, half = (crossed(simulate(plan(mode, **real, **ways)).history) for ways in ({}, BFLOAT16))
    assert whole.received["gradient"] / half.received["gradient"] == pytest.approx(2, rel=0.02)
    assert whole.sent["average"] / half.sent["average"] == pytest.approx(2, rel=0.02)


@modes
@pytest.mark.parametrize("key", ["gradients", "broadcasts"])
def test_gradients_of_single_steps_do_not_travel_as_integers(mode, key):
    with pytest.raises(ValidationError, match=f"{key} int4: mode {mode} averages gradients of single steps, and they "
                                              "travel as float32 or bfloat16"):
        plan(mode, **{key: "int4"})


def test_without_faults_all_three_are_the_same_to_the_last_bit():
    whole = last_values(synchronous(plan("data_parallel")))
    for mode in MODES:
        assert same(last_values(plan(mode)), whole)


def test_what_a_group_goes_back_behind_is_void_and_is_done_again():
    history = simulate(plan("data_parallel", KILL)).history
    (back,) = history.tape.of(RolledBack)
    lost = [merge for merge in history.merges if merge.version > back.step and merge.t < back.t]
    assert history.rolled_back == lost != []
    assert back.step % 10 == 0
    fates = [fates[part.last] for merge in lost for part in merge.contributions
             for fates in [history.accounting.fates[0, (part.learner, part.incarnation)]]]
    assert set(fates) == {"rolled back"}
    assert history.accounting.by_fate[MERGED] == history.plan.cluster.budget_tokens


def groups_after(history):
    """(seconds since the first fault, who) of every group that was formed after it."""
    began = history.spans[0].injected
    return [(event.t - began, event.learners) for event in history.tape.of(Grouped) if event.t > began]


def test_elastic_data_parallelism_goes_on_with_those_who_are_left_and_takes_the_other_in_again():
    history = simulate(plan("elastic_data_parallel", KILL | {"restart_after": "6s"}, budget="300 steps")).history
    groups = groups_after(history)
    assert [len(names) for _, names in groups] == [2, 3]
    assert 1.0 < groups[0][0] < 1.2  # reconfiguration alone: its connection ended with it
    assert groups[1][0] > 6
    assert not history.tape.of(RolledBack)


def test_a_peer_whose_connection_stands_is_missed_after_its_silence():
    history = simulate(plan("elastic_data_parallel", {"disconnect": "learner-2", "at": "2s", "for": "8s"},
                            heartbeat_timeout="2s",
                            budget="300 steps")).history
    (lost,) = history.tape.of(Lost)
    assert lost.reason.startswith("silent for 2.")
    groups = groups_after(history)
    assert [len(names) for _, names in groups] == [2, 3]
    assert 3.0 < groups[0][0] < 3.7  # silence until the next heartbeat, and reconfiguration, once each


def test_two_that_die_one_after_the_other_cost_the_group_one_reconfiguration():
    two = KILL | {"restart_after": "6s"}, {"kill": "learner-3", "at": "2600ms", "restart_after": "6s"}
    groups = groups_after(simulate(plan("elastic_data_parallel", *two, budget="300 steps")).history)
    assert groups[0][1] == ["learner-1"]
    assert 1.0 < groups[0][0] < 1.2


def test_a_peer_that_keeps_dying_does_not_hold_up_the_others_for_ever():
    loop = {"crash_loop": "learner-3", "at": "2s", "times": 8, "restart_after": "100ms"}
    history = simulate(plan("elastic_data_parallel", loop, budget="200 steps", reconfiguration="4s")).history
    during = [merge for merge in history.merges
              if history.spans[0].injected + 4 < merge.t < history.spans[-1].injected]
    assert {len(merge.contributions) for merge in during} == {2}


@modes
@pytest.mark.parametrize("silence", ["500ms", "200ms"])
def test_nobody_is_taken_for_gone_while_all_stand_still(mode, silence):
    history = simulate(plan(mode, KILL | {"restart_after": "3s"}, heartbeat_timeout=silence,
                            budget="200 steps")).history
    assert [event.learner for event in history.tape.of(Lost)] == ["learner-2"]
    assert not history.tape.of(Disconnected)
    assert history.end < 60  # 200 steps of 60 ms, and what the death costs


def test_elastic_data_parallelism_goes_back_to_the_checkpoint_where_nobody_has_anything_left():
    everybody = {"kill": ["learner-1", "learner-2", "learner-3"], "at": "2s", "restart_after": "200ms"}
    history = simulate(plan("elastic_data_parallel", everybody)).history
    (back,) = history.tape.of(RolledBack)
    assert back.step == 30
    assert history.accounting.by_fate[MERGED] == history.plan.cluster.budget_tokens


@modes
@settings(max_examples=60)
@given(data=st.data())
def test_whatever_is_broken_every_token_of_the_budget_is_merged_once_and_replicas_agree(mode, data):
    broken = data.draw(plans(learners=3, max_faults=4, budget="100 steps", mode=mode))
    result = simulate(broken)
    assert result.outcome.kind == "finished", result.outcome.message
    verdicts = {verdict.name: verdict for verdict in result.judgement.checks}
    assert verdicts["exactly_once"].verdict == "passed", verdicts["exactly_once"].evidence
    assert verdicts["all_undone"].verdict != "failed", verdicts["all_undone"].evidence
    tokens, each = result.history.accounting.by_fate[MERGED], broken.cluster.tokens_per_step_of("learner-1")
    assert 0 <= tokens - broken.cluster.budget_tokens < 3 * each
    if mode == "data_parallel":
        assert same(last_values(broken), last_values(broken.without_faults()))
