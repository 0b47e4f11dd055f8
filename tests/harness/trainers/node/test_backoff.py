"""How long a learner waits between attempts."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from diloco_chaos.harness.trainers.node.backoff import FIRST_DELAY_S, LONGEST_DELAY_S, Backoff


class Middle(random.Random):
    def uniform(self, low, high):
        return (low + high) / 2


def test_refusals_double_the_wait_up_to_a_limit():
    backoff = Backoff(Middle())
    assert [round(backoff.refused(), 6) for _ in range(7)] == [0.05, 0.1, 0.2, 0.4, 0.8, 0.8, 0.8]


def test_a_connection_on_which_anything_was_heard_begins_anew():
    backoff = Backoff(Middle())
    for _ in range(10):
        backoff.refused()
    assert backoff.lost(heard=True) == FIRST_DELAY_S
    assert backoff.refused() == FIRST_DELAY_S


def test_connections_on_which_nothing_was_heard_are_failures_too():
    backoff = Backoff(Middle())
    waits = [backoff.lost(heard=False) for _ in range(8)]
    assert waits == sorted(waits)
    assert waits[-1] == LONGEST_DELAY_S


@given(st.lists(st.sampled_from(["refused", "heard", "silent"])), st.integers())
def test_no_wait_is_outside_the_limits(events, seed):
    backoff = Backoff(random.Random(seed))
    for event in events:
        wait = backoff.refused() if event == "refused" else backoff.lost(event == "heard")
        assert 0.8 * FIRST_DELAY_S <= wait <= 1.2 * LONGEST_DELAY_S


def test_learners_that_lost_the_same_syncer_do_not_come_back_at_once():
    assert len({Backoff(random.Random(seed)).refused() for seed in range(20)}) == 20
