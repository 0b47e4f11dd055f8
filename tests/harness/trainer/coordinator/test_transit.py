"""Transit: how long until receivers have a broadcast, from echoes of the syncer's own time stamps."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diloco_chaos.harness.trainer.coordinator.transit import Transit

SPAN = st.floats(0, 100)


def measured(merging, down, up, waited=0.03, rounds=1):
    """A learner that is so far away: `merging` seconds of merge and commit, then a way down; what came waits for the
    next report, which takes a way up."""
    transit = Transit()
    for number in range(rounds):
        closed = 10.0 + number
        reported = closed + merging + down + waited
        transit.echoed(reported + up, (reported - waited - down, waited), [(closed, waited)])
    return transit


@given(st.floats(0.001, 1), SPAN, st.floats(0, 10))
def test_it_is_the_time_until_the_receiver_has_it_however_long_it_waits_to_say_so(merging, away, waited):
    assert measured(merging, away, away, waited).sync_time == pytest.approx(merging + away, abs=1e-6)


def test_nothing_is_known_before_a_clock_has_been_echoed():
    transit = Transit()
    transit.echoed(5.0, None, [(4.0, 0.1)])
    assert transit.sync_time is None


@given(SPAN, SPAN, SPAN)
def test_an_echo_from_the_future_is_none(now, sent, ago):
    transit = Transit()
    transit.echoed(now, (now + sent + 1, ago), [(now + sent + 1, ago)])
    assert transit.sync_time is None


def test_a_clock_that_waited_behind_something_hardly_makes_the_way_longer():
    transit = measured(0.002, 0.05, 0.05, rounds=20)
    transit.echoed(100.0, (98.0, 0.0), [])
    transit.echoed(101.0, (100.9, 0.0), [(100.9 - 0.002, 0.05)])
    assert transit.sync_time == pytest.approx(0.052, abs=0.011)
