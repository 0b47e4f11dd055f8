"""A process that is fitted to what another one drew is like that one; a trace with too little in it is refused."""

import numpy as np
import pytest

from diloco_chaos.harness.failures.drawing import drawn_by
from diloco_chaos.harness.failures.fitting import distance, fitted, means
from diloco_chaos.harness.failures.lengths import Lengths
from diloco_chaos.harness.failures.process import FailureProcess
from diloco_chaos.harness.failures.trace import Trace

DAY = 86_400.0
NODES, LENGTH_S = 500, 360 * DAY


def drawn(settings, in_service_s=60 * DAY, away_s=2 * DAY, seed=5):
    """A year of a cluster, as a trace."""
    return Trace.of(drawn_by(FailureProcess.model_validate(settings), NODES, in_service_s, away_s, LENGTH_S, seed))


def test_mean_times_are_the_traces_own():
    found = fitted(trace := drawn({}))
    assert (found.in_service_s, found.away_s) == means(trace)
    assert found.in_service_s == pytest.approx(60 * DAY, rel=0.06)
    assert found.away_s == pytest.approx(2 * DAY, rel=0.06)


def test_in_exponential_failures_nothing_else_is_found():
    process = fitted(drawn({})).process
    assert process.lemons == 0 or process.lemons > 8
    assert process.relapse < 0.1
    assert process.burst < 0.06  # by chance two come within six minutes
    assert process.waves == 0 or process.waves > 15
    assert process.repair_shape == pytest.approx(1, abs=0.05)


def test_what_was_put_in_is_found():
    process = fitted(drawn({"lemons": 0.8, "relapse": "30%", "relapse_within": "12h", "burst": "20%", "burst_size": 5.0,
                            "repair_shape": 0.5})).process
    assert process.lemons == pytest.approx(0.8, rel=0.25)
    assert process.relapse == pytest.approx(0.3, abs=0.05)
    assert process.relapse_within == pytest.approx(0.5 * DAY, rel=0.3)
    assert process.burst == pytest.approx(0.2, abs=0.06)
    assert process.repair_shape == pytest.approx(0.5, abs=0.05)


def test_bad_times_are_found():
    process = fitted(drawn({"waves": 2.0, "wave_length": "28d"})).process
    assert 1 < process.waves < 5
    assert 14 * DAY < process.wave_s(60 * DAY) < 45 * DAY


@pytest.mark.parametrize(("settings", "found"), [({"repair_sigma": 1.5}, "repair_sigma"),
                                                 ({"repair_shape": 0.6}, "repair_shape")])
def test_the_likelier_family_of_repairs_is_taken(settings, found):
    process = fitted(drawn(settings)).process
    assert getattr(process, found) == pytest.approx(settings[found], rel=0.1)
    assert (process.repair_sigma > 0) == (found == "repair_sigma")


def test_a_trace_of_which_nearly_all_failed_at_one_moment_is_fitted():
    starts = np.array([DAY] * 30 + [200 * DAY])
    process = fitted(Trace(40, 300 * DAY, np.arange(31), starts, starts + DAY, ("",) * 31)).process
    assert (process.burst, process.relapse) == (0.95, 0.0)
    assert process.burst_size == 30


def test_too_little_is_refused():
    trace = Trace(3, DAY, np.array([0, 1]), np.array([1.0, 2.0]), np.array([3.0, 4.0]), ("x", "x"))
    with pytest.raises(ValueError, match="too few outages to fit a process to: 2, and 20 are the least; replay it"):
        fitted(trace)


def test_the_distance_tells_a_distribution_from_another():
    chance = np.random.default_rng(1)
    for lengths, other in ((Lengths(DAY), Lengths(DAY, 0.5)), (Lengths(DAY, 0.6), Lengths(DAY)),
                           (Lengths(DAY, sigma=1.5), Lengths(DAY))):
        lasts = lengths.whole(400, chance)
        assert distance(lasts, lengths)[1] > 0.05
        assert distance(lasts, other)[1] < 1e-3
