"""Moving averages of what was measured."""

from harness.trainer.coordinator.moving_average import MovingAverage


def test_one_sample_that_is_out_of_all_proportion_hardly_moves_an_average():
    average = MovingAverage()
    for _ in range(20):
        average.add(0.01)
    average.add(2.0)  # the process stood still meanwhile
    assert average.value < 0.015


def test_an_average_follows_what_lasts():
    average = MovingAverage()
    average.add(0.01)
    for _ in range(60):
        average.add(0.2)
    assert average.value > 0.19
