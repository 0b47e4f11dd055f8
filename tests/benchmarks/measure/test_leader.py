"""The bench of a leader's death is of leaders that die when it says, and ends after it."""

import pytest

from benchmarks.measure import leader
from diloco_chaos.chaos.runner.simulate import simulate


def quickly(plan):
    """The history of such a run on a model that takes no time."""
    return simulate(plan.model_copy(update={
        "cluster": plan.cluster.model_copy(update={"model": "quadratic"})})).history


@pytest.mark.parametrize("restart", [None, "2s"])
def test_the_longest_gap_is_that_after_the_death(restart):
    history = quickly(leader.planned(2, 5, restart))
    found = leader.gaps(history)
    assert history.first_fault == pytest.approx((history.zero or 0) + 5, abs=0.1)
    assert found["longest_gap_s"] <= max(history.gaps(history.zero or 0, history.end)) + 1e-3
    assert found["ratio"] == pytest.approx(found["longest_gap_s"] / found["fault_free_p99_gap_s"], rel=0.1)
    assert found["ratio"] < 3


def test_the_others_were_slow_and_are_quick_again_when_the_leader_dies():
    plan = leader.after_a_straggle(2)
    assert plan.cluster.speeds == ()
    history = quickly(plan)
    slow, death = history.spans
    assert history.first_fault == slow.injected < slow.ended <= death.injected
    assert leader.gaps(history)["ratio"] < 3
