"""Slices that return within some time of each other are taken back together."""

import numpy as np

from diloco_chaos.harness.fleet.growth import Changes, taken_together


def together(*changes, within=10.0, horizon=100.0):
    """Changes: (time, -1 or 1, slice)."""
    lost = [(at, which) for at, step, which in changes if step < 0]
    back = [(at, which) for at, step, which in changes if step > 0]
    again = [next((later for later, other in lost if later > at and other == which), np.inf) for at, which in back]
    changes = Changes(*(np.array(times, float) for times in ([at for at, _ in lost], [at for at, _ in back], again)))
    seen = taken_together(changes, within, horizon)
    return list(zip(*(part.tolist() for part in seen), strict=True))


def test_the_first_return_waits_for_those_that_come_within_the_time_and_no_longer():
    assert together((20, 1, 0), (25, 1, 1), (30, 1, 2), (31, 1, 3)) == [
        (30, 3), (41, 1)]


def test_losses_are_seen_when_they_come():
    assert together((20, 1, 0), (24, -1, 5), (28, 1, 5)) == [(24, -1), (30, 2)]


def test_a_slice_that_is_lost_again_before_it_is_taken_back_never_was_back():
    assert together((5, -1, 0), (20, 1, 0), (22, 1, 1), (27, -1, 0), (60, 1, 0)) == [
        (5, -1), (30, 1), (70, 1)]


def test_one_that_is_lost_again_soon_and_for_good_is_not_taken_back_either():
    assert together((20, 1, 0), (22, -1, 0), (26, 1, 1), within=5.0) == [(31, 1)]


def test_what_would_be_taken_back_after_the_end_is_not():
    assert together((50, -1, 0), (95, 1, 0)) == [(50, -1)]


def test_without_returns_there_is_nothing_to_wait_for():
    assert together((50, -1, 0)) == [(50, -1)]


def test_of_two_that_are_lost_again_at_one_moment_neither_was_back():
    assert together((20, 1, 0), (21, 1, 1), (25, -1, 0), (25, -1, 1), (40, -1, 2)) == [(40, -1)]


def test_of_two_that_are_lost_at_one_moment_the_one_that_was_there_is_lost():
    assert together((20, 1, 0), (25, -1, 0), (25, -1, 1), (27, -1, 2)) == [(25, -1), (27, -1)]


def test_without_a_time_each_is_back_when_it_comes():
    seen = together((20, 1, 0), (22, 1, 1), (22, -1, 0), (30, -1, 1), within=0.0)
    assert seen == [(20, 1), (22, -1), (22, 1), (30, -1)]
