"""Figures from the moments of rounds."""

from benchmarks.league.reading import is_stall, longest_gap

STEADY = [0.0, 0.5, 1.0, 1.5, 2.0]


def test_the_longest_gap_is_from_round_to_round_and_counts_from_before_the_fault():
    assert longest_gap([*STEADY, 6.0, 6.5], 2.2, 7.0) == (2.0, 6.0)


def test_the_end_of_the_run_ends_a_gap():
    assert longest_gap(STEADY, 2.2, 9.0) == (2.0, 9.0)


def test_a_gap_before_the_fault_is_none_of_it():
    assert longest_gap([0.0, 5.0, 5.5, 6.0], 5.6, 6.1) == (5.5, 6.0)


def test_a_stall_is_far_longer_than_usual():
    assert is_stall(STEADY, 2.2, (2.0, 6.0))
    assert not is_stall(STEADY, 2.2, (2.0, 4.0))
    assert not is_stall([0.0, 0.05, 0.1], 0.1, (0.1, 0.5))
