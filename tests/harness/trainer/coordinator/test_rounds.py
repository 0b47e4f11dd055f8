"""Rounds: quorum and grace window."""

from hypothesis import given
from hypothesis import strategies as st

from diloco_chaos.harness.trainer.coordinator.plausible import LearnerOrigin
from diloco_chaos.harness.trainer.coordinator.rounds import (
    FragmentContribution,
    LearnerSession,
    Round,
    grace_window,
    typical_step_time,
    typical_sync_time,
)

TIMES = st.floats(0, 10)


@given(st.floats(0, 1), st.floats(0, 4), TIMES, TIMES, TIMES)
def test_the_grace_window_is_never_negative_and_never_longer_than_a_step(gamma, tau, step, quorum, sync):
    assert 0 <= grace_window(gamma, tau, step, quorum, sync) <= step


def test_the_grace_window_is_a_share_of_the_slack_that_the_overlap_leaves():
    assert abs(grace_window(0.8, 1, 0.1, 0.02, 0.03) - 0.04) < 1e-12


def peer(name, step, connection=1):
    return LearnerSession(name, 0, connection, step, step, [], 0.0, [], LearnerOrigin(0.0, step, 0, 0))


def answer(learner):
    return FragmentContribution(learner, 0, 0, 1, 8, 8, 8, "", 0.0, {})


def test_a_round_without_quorum_waits_however_long_it_takes():
    round_ = Round(1, 0, 0.0, asked={"a": 0})
    assert round_.may_merge(1e9) == (False, "no quorum yet")


def test_a_round_merges_at_once_when_everyone_asked_has_answered():
    round_ = Round(1, 0, 0.0, asked={"a": 0})
    round_.take(answer("a"))
    round_.reached(0.01, 0.8, 2, 0.06, 0.0)
    assert round_.may_merge(0.01) == (True, "all answered")


def test_a_round_waits_for_the_others_until_the_grace_window_is_over():
    round_ = Round(1, 0, 0.0, asked={"a": 0, "b": 0})
    round_.take(answer("a"))
    round_.reached(0.01, 0.8, 2, 0.06, 0.0)
    assert round_.grace == 0.06
    assert not round_.may_merge(0.06)[0]
    assert round_.may_merge(0.07) == (True, "grace window over")


def test_one_straggler_does_not_change_the_typical_step_time():
    peers = [peer(name, 0) for name in "abcd"]
    for index, one in enumerate(peers):
        one.step_time.add(9.0 if index == 0 else 0.06)
    assert typical_step_time(peers, 1.0) == 0.06
    assert typical_step_time([], 1.0) == 1.0


def test_reports_that_waited_for_a_syncer_that_stood_still_tell_the_steps_own_time():
    learner = peer("l1", 0)
    for step in range(1, 40):  # they all arrive at once
        learner.report(step, [], 0.06)
    assert abs(typical_step_time([learner], 1.0) - 0.06) < 1e-9


def test_a_first_step_tells_no_time():
    learner = peer("l1", 0)
    learner.report(1, [], 0.0)
    assert typical_step_time([learner], 0.07) == 0.07


def test_the_typical_receiver_is_the_median_of_those_who_are_there():
    peers = [peer(str(number), 0, connection) for number, connection in enumerate((1, 2, 3, None))]
    for one, sync_time in zip(peers, (0.003, 0.003, 5.0, 9.0), strict=True):
        one.transit.echoed(10.0, (10.0, 0.0), [(10.0 - sync_time, 0.0)])
    assert abs(typical_sync_time(peers) - 0.003) < 1e-9


def test_before_anybody_has_received_anything_there_is_no_typical_time():
    assert typical_sync_time([peer("a", 0)]) == 0.0
