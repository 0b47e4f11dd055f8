"""How many are away at once, and how many spares it takes to have enough."""

import numpy as np
import pytest

from diloco_chaos.harness.failures.away import at_most_away, away_shares, beyond, spares
from diloco_chaos.harness.failures.course import course_of
from diloco_chaos.harness.failures.lengths import Lengths
from diloco_chaos.harness.failures.process import FailureProcess
from diloco_chaos.harness.failures.source import Source

DAY = 86_400.0


def test_the_shares_are_of_the_time():
    course = course_of(np.array([0, 1, 2]), np.array([-1.0, 2.0, 4.0]), np.array([3.0, 6.0, 12.0]), 5, 10.0)
    shares = away_shares(course)
    assert shares.tolist() == pytest.approx([0.0, 0.7, 0.3])
    assert (beyond(shares, 0), beyond(shares, 1), beyond(shares, 7)) == pytest.approx((1.0, 0.3, 0.0))
    assert [at_most_away(shares, share) for share in (0.5, 0.7, 0.71, 1.0)] == [1, 1, 2, 2]


def test_independent_failures_ask_for_what_the_binomial_distribution_does():
    """Of 100 + n nodes each is away for a twentieth of the time."""
    wanted = spares(Source(Lengths(19 * DAY), Lengths(DAY)), 100, 0.99, 365 * DAY, 20, 0)
    least = next(n for n in range(100) if _binomial(100 + n, 0.05, n) >= 0.99)
    assert abs(wanted.needed - least) <= 1
    assert wanted.low <= wanted.needed <= wanted.high


def _binomial(count, share, most):
    terms = [1.0]
    for number in range(most):
        terms.append(terms[-1] * (count - number) / (number + 1) * share / (1 - share))
    return sum(terms) * (1 - share) ** count


def test_failures_with_a_history_ask_for_more():
    process = FailureProcess.model_validate({"burst": "40%", "burst_size": 8.0, "waves": 1.0, "repair_shape": 0.5})
    plain, heavy = (spares(Source(Lengths(19 * DAY), Lengths(DAY), each), 100, 0.99, 365 * DAY, 10, 0)
                    for each in (None, process))
    assert heavy.needed > plain.needed + 3
