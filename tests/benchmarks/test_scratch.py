"""What is measured from scratch can be run in real time, too."""

import pytest

from benchmarks.scratch import POINTS, _paced, curve


@pytest.mark.parametrize("point", POINTS)
def test_a_larger_batch_is_given_as_much_longer_steps(point):
    batch, steps = point
    plan = _paced((0, batch, steps))
    cluster = plan.cluster
    assert (cluster.batch, cluster.budget) == point
    assert cluster.step_time == pytest.approx(0.1 * batch / 16)
    assert plan.deadline > 2 * cluster.step_time * steps


def test_the_curve_shows_every_gap_at_its_tokens_and_says_which_batch_it_is_of():
    lines = curve({point: 0.01 * number for number, point in enumerate(POINTS, 1)}).splitlines()
    assert all(len(line) <= 80 for line in lines)
    top = next(line for line in lines if "x" in line)
    assert top.split()[0] == f"{len(POINTS)}.00"
    assert lines[-1].split() == ["●", "batch", "16", "+", "batch", "32", "x", "batch", "64"]
    assert lines[-2].split() == ["0.82", "6.55", "million", "tokens"]
