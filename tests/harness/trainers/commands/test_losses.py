"""A curve of the losses that workers tell."""

import math

from diloco_chaos.harness.trainers.commands.losses import POINTS, curve
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


def test_losses_that_are_none_and_rounds_beyond_the_end_are_left_out():
    assert told(math.nan, None, math.inf, rounds=2) == []
    assert [point.round for point in told(1.0, 1.0, 1.0, rounds=2)] == [1, 2]
