"""The pace of a learner: steps begin when they should, lateness of up to a step is made up for, no more."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diloco_chaos.harness.trainers.core.pacer import Metronome


def test_a_step_that_computes_faster_waits():
    pace = Metronome(1.0)
    assert [pace.next(now) for now in (10.0, 10.3, 11.9)] == [10.0, 11.0, 12.0]


def test_lateness_of_up_to_a_step_is_made_up_for():
    pace = Metronome(1.0)
    assert [pace.next(now) for now in (0.0, 1.9, 2.5)] == [0.0, 1.9, 2.5]
    assert pace.next(2.6) == 3.0


def test_more_than_that_is_not():
    pace = Metronome(1.0)
    assert [pace.next(now) for now in (0.0, 5.0, 5.1)] == [0.0, 5.0, 6.0]


def test_without_pace_nobody_waits():
    pace = Metronome(0.0)
    assert [pace.next(now) for now in (0.0, 0.1, 0.1)] == [0.0, 0.1, 0.1]


@given(st.floats(0.01, 0.9), st.text(max_size=5))
def test_steps_that_vary_stay_within_their_bounds_and_are_the_same_for_the_same_seed(variance, seed):
    def lengths():
        pace, now, found = Metronome(1.0, variance, seed), 0.0, []
        pace.next(now)
        for _ in range(200):
            after = pace.next(now)
            found.append(after - now)
            now = after
        return found
    found = lengths()
    assert all(1 - variance - 1e-9 <= length <= 1 + variance + 1e-9 for length in found)
    assert max(found) - min(found) > variance
    assert sum(found) / len(found) == pytest.approx(1.0, abs=variance / 4)
    assert lengths() == found
