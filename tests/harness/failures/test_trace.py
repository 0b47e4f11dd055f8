"""What happened to a cluster happens to a fleet: as it was, or week by week."""

import numpy as np
import pytest

from diloco_chaos.harness.failures.away import away_shares
from diloco_chaos.harness.failures.trace import Trace

DAY, WEEK = 86_400.0, 7 * 86_400.0


@pytest.fixture
def trace():
    """Four weeks of four nodes; node 1 is away over the end of the first week, node 3 at the end of the last."""
    starts, ends = np.array([1, 6, 9, 16, 27]) * DAY, np.array([2, 8, 10, 20, 28]) * DAY
    return Trace(4, 4 * WEEK, np.array([0, 1, 0, 2, 3]), starts, ends, ("GPU",) * 5)


def test_a_trace_is_replayed_as_it_was(trace):
    course = trace.replayed(4, 4 * WEEK)
    lost = course.steps < 0
    assert course.times[lost].tolist() == trace.starts.tolist()
    assert course.slices[lost].tolist() == trace.whose.tolist()
    assert course.times[~lost].tolist() == sorted(trace.ends[:-1])
    assert course.again[~lost].tolist() == [9 * DAY, np.inf, np.inf, np.inf]
    assert away_shares(course).tolist() == pytest.approx([1 - 9 / 28, 9 / 28])


def test_after_its_end_it_begins_again(trace):
    course = trace.replayed(4, 10 * WEEK, begin=WEEK)
    assert course.at_first.tolist() == [True, False, True, True]
    assert course.times[(course.steps < 0) & (course.slices == 0)].tolist() == [2 * DAY, 22 * DAY, 30 * DAY, 50 * DAY,
                                                                             58 * DAY]


def test_a_larger_fleet_is_made_of_several_clusters_that_begin_elsewhere(trace):
    course = trace.replayed(8, 4 * WEEK)
    mine, other = (course.times[(course.steps < 0) & (course.slices == node)].tolist() for node in (0, 4))
    assert mine == [DAY, 9 * DAY]
    assert other == [15 * DAY, 23 * DAY]
    assert len(trace.replayed(6, 4 * WEEK).at_first) == 6


def test_weeks_are_drawn_with_the_outages_that_began_in_them(trace):
    seen = set()
    for seed in range(20):
        course = trace.by_weeks(4, 3 * WEEK, seed)
        lost = course.steps < 0
        seen |= set(zip(course.slices[lost].tolist(), (course.times[lost] % WEEK / DAY).round(6).tolist(), strict=True))
    assert seen == {(0, 1.0), (1, 6.0), (0, 2.0), (2, 2.0), (3, 6.0)}


def test_an_outage_of_the_week_before_may_still_be_on(trace):
    assert any(not trace.by_weeks(4, WEEK, seed).at_first.all() for seed in range(30))
    losses = np.mean([(trace.by_weeks(4, 40 * WEEK, seed).steps < 0).sum() for seed in range(20)])
    assert losses == pytest.approx(50, rel=0.1)


def test_a_resampled_trace_is_made_of_its_weeks(trace):
    drawn = [trace.resampled(seed) for seed in range(20)]
    assert all((each.nodes, each.length_s) == (4, 4 * WEEK) for each in drawn)
    assert {round(start % WEEK / DAY, 6) for each in drawn for start in each.starts} == {1.0, 2.0, 6.0}
    assert all((each.ends > each.starts).all() and (np.diff(each.starts) >= 0).all() for each in drawn)
    assert len({len(each.starts) for each in drawn}) > 2


def test_outages_of_a_node_that_overlap_by_the_drawing_are_one():
    trace = Trace(1, 2 * WEEK, np.array([0, 0]), np.array([5.0, 8.0]) * DAY, np.array([8.0, 13.0]) * DAY, ("x", "x"))
    for seed in range(30):
        course = trace.by_weeks(1, 5 * WEEK, seed)
        assert (np.diff(course.steps.astype(int)) != 0).all()  # lost and back in turn
