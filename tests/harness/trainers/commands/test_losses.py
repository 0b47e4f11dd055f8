"""A curve of the losses that workers tell."""

import math

import pytest

from diloco_chaos.harness.trainers.commands.losses import POINTS, curve, curves, told_loss
from recorded_events import an_event


def told(*losses, rounds):
    """The curve where round n + 1 was told with the n-th loss, by one worker, a second apart."""
    return curve([an_event(float(number), "w", 0, "step", {"step": number, "loss": loss})
                  for number, loss in enumerate(losses, 1)], rounds)


def test_a_point_is_the_median_of_a_twentieth_of_the_run_at_its_last_round():
    points = told(*[9.0, 1.0, 2.0, 3.0, 4.0] * POINTS, rounds=5 * POINTS)
    assert [(point.number, point.round, point.t, point.loss) for point in points] == [
        (number, 5 * number, 5.0 * number, 3.0) for number in range(1, POINTS + 1)]


def test_a_run_that_ends_early_lacks_the_last_points():
    assert [point.number for point in told(*[1.0] * 10, rounds=40)] == [1, 2, 3, 4, 5]


def test_what_several_workers_tell_of_a_round_is_one_point():
    steps = [an_event(1.0, name, 0, "step", {"step": 1, "loss": loss}) for name, loss in (("a", 1.0), ("b", 3.0))]
    assert [point.loss for point in curve(steps, 20)] == [2.0]


def test_what_is_no_number_is_larger_than_any_number():
    steps = [an_event(1.0, "w", 0, "step", {"step": 1, "no_number": "nan"})]
    assert [point.loss for point in curve(steps, 20)] == [math.inf]
    finite = [an_event(2.0, "w", 0, "step", {"step": 1, "loss": loss}) for loss in (1.0, 2.0)]
    assert [point.loss for point in curve(steps + finite, 20)] == [2.0]


def test_a_point_says_how_far_chance_may_take_it():
    assert told(*[1.0] * 40, rounds=40)[0].error == 0.0
    assert told(*[1.0, 3.0] * 20, rounds=40)[0].error == pytest.approx(math.sqrt(math.pi / 2))


def test_every_worker_has_its_own_curve():
    steps = [an_event(1.0, name, 0, "step", {"step": 1, "loss": loss}) for name, loss in (("a", 1.0), ("b", 3.0))]
    assert {name: points[0].loss for name, points in curves(steps, 20).items()} == {"a": 1.0, "b": 3.0}


@pytest.mark.parametrize(("loss", "told"), [
    (1.5, (1.5, None)), (None, (None, None)), (math.nan, (None, "nan")), (math.inf, (None, "inf")),
    (-math.inf, (None, "-inf"))])
def test_told_and_no_number_is_something_else_than_nothing_told(loss, told):
    assert told_loss(loss) == told


def test_losses_that_are_none_and_rounds_beyond_the_end_are_left_out():
    assert told(None, None, rounds=2) == []
    assert [point.round for point in told(1.0, 1.0, 1.0, rounds=2)] == [1, 2]
