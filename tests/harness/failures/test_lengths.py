"""Lengths of time of the exponentiated Weibull family."""

import math

import numpy as np
import pytest

from diloco_chaos.harness.failures.lengths import Lengths

FAMILY = [Lengths(90.0), Lengths(90.0, 0.6), Lengths(90.0, 2.5), Lengths(90.0, 0.7, 3.0), Lengths(90.0, 1.4, 0.5)]
MANY = 400_000


@pytest.mark.parametrize("lengths", FAMILY)
def test_what_is_drawn_has_the_mean_that_was_asked_for(lengths):
    assert lengths.whole(MANY, np.random.default_rng(1)).mean() == pytest.approx(90.0, rel=0.02)


@pytest.mark.parametrize("lengths", FAMILY)
def test_what_is_left_at_any_moment_is_half_of_the_mean_square_over_the_mean(lengths):
    drawn = lengths.whole(MANY, np.random.default_rng(1))
    left = lengths.left(MANY, np.random.default_rng(2))
    assert left.mean() == pytest.approx((drawn ** 2).mean() / drawn.mean() / 2, rel=0.04)


@pytest.mark.parametrize("lengths", FAMILY)
def test_the_probability_that_nothing_happens_meanwhile_is_that_of_what_is_drawn(lengths):
    chance = np.random.default_rng(3)
    nothing = chance.exponential(1 / 0.02, MANY) > lengths.whole(MANY, chance)
    assert lengths.survives(0.02) == pytest.approx(nothing.mean(), abs=0.004)


def test_the_exponent_shapes_how_many_are_shorter_than_a_tenth_of_the_mean():
    # Weibull of shape 1 with exponent 2: the longer of two exponential lengths, of mean 1.5 scales.
    longer = Lengths(90.0, 1.0, 2.0).whole(MANY, np.random.default_rng(4))
    assert (longer < 9.0).mean() == pytest.approx((1 - math.exp(-9.0 / 60.0)) ** 2, abs=0.002)


def test_of_no_length_nothing_is_left():
    assert Lengths(0.0, 0.5).whole(3, np.random.default_rng(5)).tolist() == [0.0] * 3
