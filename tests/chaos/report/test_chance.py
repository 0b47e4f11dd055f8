"""How sure a few runs are: what intervals cover, and what is called more than chance."""

import math

import numpy as np
import pytest

from diloco_chaos.chaos.report.chance import (
    beyond,
    difference,
    difference_of_rates,
    estimate,
    more_than_chance,
    quantile,
    wilson,
)

PAGES, FIGURES = 200, 8
MANY = 2000
"""How often 95% is met, to one in a hundred."""
RUNS = (3, 5, 10)


def _normal(rng, runs, more):
    seed = rng.exponential(5.0, runs)  # what a seed does to both
    return seed + 5 + rng.normal(0, 0.4, runs), seed + 5 + more + rng.normal(0, 0.7, runs)


def _skewed(rng, runs, more):
    return np.exp(rng.normal(0, 0.3, runs)), (1 + more) * np.exp(rng.normal(0, 0.3, runs))


def _since_a_checkpoint(rng, runs, more):
    return rng.uniform(0, 2, runs), rng.uniform(0, 2 * (1 + more), runs)


def _counted(rng, runs, more):
    return np.floor(rng.uniform(0, 10, runs)), np.floor(rng.uniform(0, 10 * (1 + more), runs))


NOISE = [(_normal, 2.0, 2.0, 0.02), (_skewed, 2.0, 2.0 * math.exp(0.3 ** 2 / 2), 0.02),
         (_since_a_checkpoint, 2.0, 2.0, 0.02), (_counted, 2.0, 10.0, 1.0)]


def _pairs(noise, rng, runs, more):
    first, second = noise(rng, runs, more)
    return list(zip(first.tolist(), second.tolist(), strict=True))


@pytest.mark.parametrize("runs", RUNS)
@pytest.mark.parametrize(("noise", "more", "true", "resolution"), NOISE)
def test_the_interval_covers_a_true_difference_in_95_of_100(noise, more, true, resolution, runs):
    rng = np.random.default_rng(runs)
    told = [difference(_pairs(noise, rng, runs, more), resolution).estimate for _ in range(MANY)]
    assert sum(each.low <= true <= each.high for each in told) >= 0.95 * MANY


@pytest.mark.parametrize("runs", RUNS)
@pytest.mark.parametrize(("noise", "resolution"), [(noise, resolution) for noise, _, _, resolution in NOISE])
def test_a_page_of_figures_calls_no_difference_where_there_is_none_in_95_of_100(noise, resolution, runs):
    rng = np.random.default_rng(runs)
    pages = [more_than_chance([difference(_pairs(noise, rng, runs, 0.0), resolution).chance for _ in range(FIGURES)])
             for _ in range(PAGES)]
    assert sum(not any(page) for page in pages) >= 0.95 * PAGES


@pytest.mark.parametrize("runs", RUNS)
def test_a_verdict_as_likely_in_both_is_called_different_on_no_more_than_one_page_in_20(runs):
    rng = np.random.default_rng(runs)
    held = rng.binomial(runs, 0.7, (PAGES, 2))
    called = [difference_of_rates((int(first), runs), (int(second), runs)).chance <= 0.05 for first, second in held]
    assert sum(called) <= 0.05 * PAGES


def test_a_difference_that_is_large_beside_the_noise_is_called_in_three_runs():
    rng = np.random.default_rng(1)
    pages = [more_than_chance([difference(_pairs(_normal, rng, 3, 55.0)).chance] + [1.0] * 7)[0] for _ in range(50)]
    assert sum(pages) >= 45


def test_a_mean_lies_within_its_interval_in_95_of_100():
    rng = np.random.default_rng(2)
    told = [estimate(rng.uniform(0, 10, 5).tolist()) for _ in range(MANY)]
    assert sum(each.low <= 5 <= each.high for each in told) >= 0.95 * MANY


def test_one_value_has_no_interval_and_none_no_mean():
    assert estimate([3.0]) == (1, 3.0, None, None)
    assert estimate([]) is None
    assert difference([(1.0, 3.0)]) == ((1, 2.0, None, None), 1.0, (0, 0))


def test_rounds_that_differ_by_one_in_each_of_three_pairs_may_be_rounded_so():
    by_one, by_three = (difference([(n, n + more) for n in (1.0, 2.0, 3.0)], 1.0) for more in (1, 3))
    assert by_one.chance > 0.05 > by_three.chance
    assert by_one.estimate.low < 0 < by_three.estimate.low


def test_what_is_exactly_the_same_is_no_difference():
    assert difference([(2.0, 2.0)] * 5).chance == 1.0


def test_pairs_without_a_value_are_counted():
    told = difference([(None, 2.0), (1.0, 2.0), (2.0, None), (None, None), (1.0, 2.5)])
    assert told.missing == (2, 2)
    assert told.estimate.runs == 2


def test_the_more_is_looked_at_the_less_is_called():
    assert more_than_chance([0.04]) == [True]
    assert more_than_chance([0.04, 0.5]) == [False, False]
    assert more_than_chance([0.03, 0.02]) == [True, True]
    assert more_than_chance([]) == []


@pytest.mark.parametrize(("first", "second", "chance"), [
    ((3, 3), (0, 3), 2 * 0.5 ** 6), ((5, 5), (0, 5), 2 * 0.5 ** 10), ((3, 3), (3, 3), 1.0)])
def test_rates_differ_by_chance_as_barnard_has_it(first, second, chance):
    assert difference_of_rates(first, second).chance == pytest.approx(chance, abs=1e-3)


def test_no_run_that_proved_anything_has_no_rate():
    assert difference_of_rates((0, 0), (3, 3)) == (None, 1.0, (0, 0))


@pytest.mark.parametrize(("freedom", "t"), [(1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (9, 2.262), (30, 2.042)])
def test_students_t_is_that_of_the_tables(freedom, t):
    assert quantile(0.95, freedom) == pytest.approx(t, abs=1e-3)
    assert beyond(t, freedom) == pytest.approx(0.05, abs=1e-4)


@pytest.mark.parametrize(("passed", "count", "low", "high"), [
    (0, 0, 0.0, 1.0), (10, 10, 0.7225, 1.0), (0, 10, 0.0, 0.2775), (8, 10, 0.4902, 0.9433), (50, 100, 0.4038, 0.5962)])
def test_the_interval_of_a_rate_is_wilsons(passed, count, low, high):
    assert wilson(passed, count) == pytest.approx((low, high), abs=1e-4)
