"""The bench of a leader's death is of leaders that die when it says, and ends after it."""

import pytest

from benchmarks import leader
from chaos.simulate import simulate


@pytest.mark.parametrize("restart", [None, "2s"])
def test_the_longest_gap_is_that_after_the_death(restart):
    plan = leader.planned(2, 5, restart)
    quadratic = plan.model_copy(update={"cluster": plan.cluster.model_copy(update={"model": "quadratic"})})
    history = simulate(quadratic).history
    found = leader.gaps(history)
    assert history.first_fault == pytest.approx((history.zero or 0) + 5, abs=0.1)
    assert found["longest_gap_s"] <= max(history.gaps(history.zero or 0, history.end)) + 1e-3
    assert found["ratio"] == pytest.approx(found["longest_gap_s"] / found["fault_free_p99_gap_s"], rel=0.1)
    assert found["ratio"] < 3
