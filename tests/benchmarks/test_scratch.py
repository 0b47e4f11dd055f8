"""What is measured from scratch can be run in real time, too."""

import pytest

from benchmarks.scratch import POINTS, _paced


@pytest.mark.parametrize("point", POINTS)
def test_a_larger_batch_is_given_as_much_longer_steps(point):
    batch, steps = point
    cluster = _paced((0, batch, steps)).cluster
    assert (cluster.batch, cluster.budget) == point
    assert cluster.step_time == pytest.approx(0.1 * batch / 16)
