"""Another machine's clock: whatever the network does, the estimate is wrong by no more than it says."""

from __future__ import annotations

from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diloco_chaos.harness.places.base import ClusterError
from diloco_chaos.harness.places.remote.clocks import Comparing, Reading, RemoteClock

DELAY = st.floats(0.0, 0.5)


class Elsewhere:
    """A machine whose clock began at another time and drifts; each way of the network takes as long as is said."""

    def __init__(self, skew, drift):
        self.skew, self.drift = skew, drift

    def shows(self, now):
        return now * (1 + self.drift) + self.skew

    def exchange(self, now, there, back):
        return Reading.of(now, self.shows(now + there), now + there + back)


@given(st.floats(-1e6, 1e6), st.floats(-5e-5, 5e-5), st.lists(st.tuples(st.floats(0.1, 30.0), DELAY, DELAY), min_size=1,
                                                              max_size=40))
def test_it_is_ahead_by_what_is_said_give_or_take_the_error(skew, drift, exchanges):
    other, clock, now = Elsewhere(skew, drift), RemoteClock(), 1000.0
    for pause, there, back in exchanges:
        now += pause
        clock.add(other.exchange(now, there, back))
        now += there + back
        best = clock.best(now)
        assert abs(best.ahead - (other.shows(now) - now)) <= best.error + 1e-6


def test_of_several_the_quickest_is_believed():
    other, clock = Elsewhere(5.0, 0.0), RemoteClock()
    for there in (0.3, 0.001, 0.2):
        clock.add(other.exchange(10.0, there, 0.0005))
    assert clock.best(10.0).error < 0.001


def test_what_was_known_long_ago_is_known_less_well():
    clock = RemoteClock()
    clock.add(Reading(0.0, 1.0, 0.001))
    assert clock.best(100.0).error == pytest.approx(0.011)


def test_clocks_are_compared_again_and_again_and_one_that_is_gone_hinders_no_other():
    asked = count()

    def gone():
        raise ClusterError("it is gone")

    comparing = Comparing(lambda: [gone, lambda: next(asked)])
    comparing.join(1.5)
    comparing.close()
    comparing.join(5.0)
    assert next(asked) >= 3
