"""Slices are in service and away in turn, from any moment of a long life on."""

import numpy as np
import pytest

from diloco_chaos.harness.failures.course import drawn_course
from diloco_chaos.harness.failures.lengths import Lengths

DAY = 86_400.0


def drawn(slices=400, in_service=2 * DAY, away=0.25 * DAY, shape=1.0, repair=(1.0, 1.0), days=60, seed=0):
    return drawn_course(slices, Lengths(in_service, shape), Lengths(away, *repair), days * DAY, seed)


def test_each_slice_is_lost_and_back_in_turn_from_what_it_was_at_first():
    course = drawn()
    assert (np.diff(course.times) >= 0).all()
    for number in range(400):
        mine = course.steps[course.slices == number].tolist()
        turns = [-1, 1] if course.at_first[number] else [1, -1]
        assert mine == (turns * len(mine))[:len(mine)]
        back = course.again[(course.slices == number) & (course.steps > 0)]
        losses = course.times[(course.slices == number) & (course.steps < 0)]
        assert back[back < 60 * DAY].tolist() == losses[-len(back[back < 60 * DAY]):].tolist()


@pytest.mark.parametrize(("shape", "repair"), [
    (0.5, (1.0, 1.0)), (1.0, (1.0, 1.0)), (3.0, (1.0, 1.0)), (1.0, (0.5, 1.0)), (1.0, (0.7, 3.0))])
def test_a_fleet_is_as_it_will_be_from_the_beginning_on(shape, repair):
    # As many losses in the first tenth as in the last, and as many slices away at first as on average.
    losses, returns, away = [], [], []
    for seed in range(30):
        course = drawn(shape=shape, repair=repair, days=20, seed=seed)
        lost = course.times[course.steps < 0]
        losses.append(np.histogram(lost, bins=10, range=(0, 20 * DAY))[0])
        returns.append(np.histogram(course.times[course.steps > 0], bins=10, range=(0, 20 * DAY))[0])
        away.append((~course.at_first).mean())
    expected = 400 * 2 * DAY / (2 * DAY + 0.25 * DAY)
    assert np.mean(losses, axis=0) == pytest.approx(np.full(10, expected), rel=0.05)
    assert np.mean(returns, axis=0) == pytest.approx(np.full(10, expected), rel=0.05)
    assert np.mean(away) == pytest.approx(0.25 / 2.25, rel=0.1)


def test_where_who_is_lost_is_replaced_at_once_nobody_is_away_and_nobody_comes_back():
    course = drawn(away=0.0)
    assert course.at_first.all()
    assert (course.steps == -1).all()


def test_a_weibull_life_has_the_mean_that_was_asked_for():
    for shape in (0.5, 2.0):
        course = drawn(shape=shape, away=0.0, days=600, slices=200)
        assert len(course.times) == pytest.approx(200 * 300, rel=0.03)


def test_the_same_seed_draws_the_same():
    one, other, third = drawn(seed=3), drawn(seed=3), drawn(seed=4)
    assert (one.times == other.times).all()
    assert len(one.times) != len(third.times) or (one.times != third.times).any()


def test_a_fleet_that_never_fails_has_no_events():
    assert len(drawn(in_service=1e15, days=1).times) == 0
