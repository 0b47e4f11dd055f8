"""Moving averages of what was measured."""

from diloco_chaos.harness.trainer.coordinator.moving_average import MovingAverage


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


def test_a_first_sample_that_was_far_too_long_gives_way_to_the_second():
    average = MovingAverage()
    for sample in (1.0, 0.01):
        average.add(sample)
    assert average.value == 0.01


def test_only_the_first_sample_gives_way_and_only_where_it_was_far_too_long():
    average = MovingAverage(weight=0.5)
    for sample in (0.03, 0.01, 0.001):
        average.add(sample)
    assert abs(average.value - ((0.03 + 0.01) / 2 + 0.001) / 2) < 1e-12
