"""A learner whose weights can't be right: it drops what it had, is sent everything, and counts again."""

import numpy as np
import pytest

from diloco_chaos.harness.trainer.coordinator.fragment_state import too_large
from diloco_chaos.harness.trainers.core.memory import Corruption


def events(cluster, name, node=None):
    return [event for event in cluster.tape if event.event == name and node in (None, event.node)]


def corrupt(cluster, name, change=lambda array: array.fill(np.nan)):
    cluster.learners[name].replica.damage("weights", change)


def merged_from(cluster, name, since):
    return [part for merge in events(cluster, "merge") if merge.t > since for part in merge.contributions
            if part.learner == name]


@pytest.mark.parametrize("settings", [
    {"on_receipt": "carry"}, {"on_receipt": "overwrite"}, {"recovery": "peer"}, {"quorum": 4, "overlap": 0},
    {"mode": "streaming"}, {"mode": "diloco"},
    {"gradients": "int4", "broadcasts": "int4", "error_feedback": True}],
    ids=["carry", "overwrite", "peer", "blocking", "streaming", "diloco", "int4"])
def test_weights_that_become_nan_cost_a_learner_the_steps_since_and_nobody_else_anything(make_cluster, settings):
    cluster = make_cluster(budget=100, **settings)
    cluster.run(until=2.0)
    corrupt(cluster, "learner-2")
    cluster.run(until=60)
    assert cluster.over
    (reset,) = events(cluster, "reset")
    assert reset.reason in ("weights not finite", "not finite")  # the latter where it stood, and answered with them
    assert len(events(cluster, "skipped")) == (reset.reason == "weights not finite")
    assert [event.learner for event in events(cluster, "renewed")] == ["learner-2"]
    again = merged_from(cluster, "learner-2", 2.0)
    assert min(part.first for part in again if part.first > reset.step) == reset.step + 1
    assert max(part.last for part in again) > reset.step + 20
    assert all(np.isfinite(array).all() for state in cluster.syncer.fragments.states for array in state.value.values())


def test_a_step_that_came_to_nothing_does_not_use_up_the_budget(make_cluster):
    cluster = make_cluster(budget=60)
    cluster.run(until=1.0)
    corrupt(cluster, "learner-1")
    cluster.run()
    counted = sum(event.tokens for event in events(cluster, "step"))
    budget = cluster.config.budget_tokens
    assert budget <= counted <= budget + 2 * cluster.config.tokens_of_all


def test_a_value_as_large_as_no_training_makes_it_is_refused_and_its_learner_told_everything(make_cluster):
    cluster = make_cluster()
    cluster.run(until=1.5)
    corrupt(cluster, "learner-3", lambda array: array.__setitem__(0, 1e30))
    cluster.run()
    refused = [event for event in events(cluster, "refused") if event.reason == "too large"]
    assert {event.learner for event in refused} == {"learner-3"}
    assert events(cluster, "reset")[0].reason == "too large"
    assert merged_from(cluster, "learner-3", events(cluster, "reset")[0].t + 0.5)
    assert max(np.abs(array).max() for state in cluster.syncer.fragments.states for array in state.value.values()) < 100


def test_training_moves_values_by_less_than_what_is_too_large():
    value = {"a": np.full(3, 0.02, np.float32), "b": np.full(3, -5, np.float32)}
    assert not too_large({"a": np.full(3, 400, np.float32), "b": np.zeros(3, np.float32)}, value)
    assert too_large({"a": np.full(3, -600, np.float32), "b": np.zeros(3, np.float32)}, value)


def test_a_connection_that_breaks_while_everything_is_sent_costs_nothing_more(make_cluster):
    cluster = make_cluster(budget=100, delay=0.02)
    cluster.run(until=2.0)
    corrupt(cluster, "learner-2")
    while not events(cluster, "renewed"):
        cluster.run(until=cluster.now + 0.01)
    cluster.disconnect("learner-2")
    cluster.run(until=60)
    assert cluster.over
    steps = [event.step for event in events(cluster, "step", "learner-2")]
    assert steps == list(range(steps[0], steps[0] + len(steps)))
    assert merged_from(cluster, "learner-2", events(cluster, "renewed")[0].t + 0.5)


def test_moments_are_fresh_after_a_reset(make_cluster):
    cluster = make_cluster()
    cluster.run(until=1.0)
    loaded = []
    replica = cluster.learners["learner-1"].replica
    replica.load = lambda state: loaded.append(state)
    corrupt(cluster, "learner-1")
    cluster.run(until=1.5)
    assert loaded == [{}]


def test_what_failed_stands_on_the_learners_own_tape(make_cluster):
    cluster = make_cluster()
    cluster.run(until=1.0)
    (told,) = cluster.learners["learner-1"].corrupt(Corruption("f1", "weights", "nan", 2, 3))
    assert told.event == "corrupted"
    assert (told.fault, told.values, told.step) == ("f1", 2,
                                                                                 cluster.learners["learner-1"].step)
