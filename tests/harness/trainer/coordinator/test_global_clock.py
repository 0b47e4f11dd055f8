"""The global clock: as quick as the K-th quickest living learner, whoever was ahead before."""

import heapq
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diloco_chaos.harness.trainer.coordinator.global_clock import progressed, slack_of, ticked

STEPS = 1000


@dataclass
class Learner:
    place: int
    live: bool = True


def driven(speeds, quorum, variance=0.0, seed=1, until=STEPS, acts=lambda now, index, learner: True):
    """(time, t) at each of the clock's ticks while learners of these speeds, at phases of their own, take steps of
    nominal length 1 / speed, as long as they act."""
    chance = np.random.default_rng(seed)
    learners = [Learner(0) for _ in speeds]
    queue = [(chance.random() / speed, index) for index, speed in enumerate(speeds)]
    heapq.heapify(queue)
    t, ticks, slack = 0, [], slack_of(variance)
    while queue[0][0] < until:
        now, index = heapq.heappop(queue)
        if acts(now, index, learners[index]):
            progressed(learners[index], 1, t, slack)
            was, t = t, ticked(learners, quorum, t, slack)
            ticks += [(now, t)] if t > was else []
        heapq.heappush(queue, (now + (1 + variance * chance.uniform(-1, 1)) / speeds[index], index))
    return ticks


@pytest.mark.parametrize("speeds", [(1,) * 4, (1, .82, .82, .82), (1, 1, .82, .82), (1, .9, .5, .25), (1,) * 8])
@pytest.mark.parametrize("variance", [0, 0.1, 0.3, 0.9])
@pytest.mark.parametrize("quorum", [1, 2, 3, 4])
def test_the_clock_goes_as_the_kth_quickest_learner(speeds, variance, quorum):
    (begin, first), *_, (end, last) = driven(speeds, quorum, variance)
    speed = sorted(speeds, reverse=True)[quorum - 1]
    assert (last - first) / (end - begin) / speed == pytest.approx(1, abs=0.05)


@given(st.lists(st.sampled_from([1.0, 0.9, 0.82, 0.5]), min_size=2, max_size=6), st.data())
def test_whoever_dies_the_next_one_drives_the_clock_within_two_of_its_steps(speeds, data):
    quorum = data.draw(st.integers(1, len(speeds) - 1))
    victim = data.draw(st.integers(0, len(speeds) - 1))
    death = data.draw(st.floats(5, 200))

    def until_death(now, index, learner):
        learner.live = index != victim or now < death
        return learner.live
    ticks = [now for now, _ in driven(speeds, quorum, until=300, acts=until_death)]
    left = sorted(speeds[:victim] + speeds[victim + 1:], reverse=True)
    gaps = [later - earlier for earlier, later in pairwise(ticks) if later > death]
    assert max(gaps) <= 2 / left[quorum - 1] + 1e-9


def test_a_leader_that_stands_still_and_is_not_yet_missed_holds_up_nobody():
    ticks = [now for now, _ in driven((1, 0.82, 0.82, 0.82), 1, until=100,
                                      acts=lambda now, index, learner: index or not 50 < now < 60)]
    assert max(later - earlier for earlier, later in pairwise(ticks)) <= 2 / 0.82


def test_without_a_quorum_the_clock_stands_and_it_never_goes_back():
    learners = [Learner(7), Learner(9, live=False)]
    assert ticked(learners, 2, 5, 1) == 5
    assert ticked(learners, 1, 8, 1) == 8
    assert ticked([], 1, 8, 1) == 8


def test_who_is_behind_has_no_debt_and_who_is_ahead_no_credit():
    ahead, behind, dead = Learner(10), Learner(2), Learner(2, live=False)
    progressed(ahead, 50, 10, 1)
    assert ahead.place == 11
    assert ticked([ahead, behind, dead], 1, 10, 1) == 11
    assert (behind.place, dead.place) == (10, 2)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(-5, 10**18)), max_size=50), st.integers(1, 4))
def test_whatever_is_reported_moves_the_clock_by_no_more_than_its_slack_at_a_time(reports, quorum):
    learners, t = [Learner(0) for _ in range(4)], 0
    for index, steps in reports:
        progressed(learners[index], steps, t, 1)
        now = ticked(learners, quorum, t, 1)
        assert t <= now <= t + 1
        assert all(abs(learner.place - now) <= 1 for learner in learners)
        t = now
