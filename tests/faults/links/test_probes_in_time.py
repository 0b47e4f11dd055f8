"""What is heard while a fault of links lasts tells of it; what comes later does not."""

from dataclasses import replace
from itertools import count

import pytest


@pytest.fixture
def observed(hit, fault):
    """observed(calls, **settings) -> what a fault observes that is over at so many looks whether it lasts."""
    def observe(looks, **settings):
        number = count(1)
        made = fault(**settings)
        made.put(hit)
        return made.observe(replace(hit, lasts=lambda: next(number) <= looks))
    return observe


@pytest.mark.parametrize("looks", [2, 3, 5, 99])
def test_one_probe_in_time_is_enough(observed, looks):
    seen = observed(looks, kind="latency", targets="learner-1", delay="50ms", **{"for": "500ms"})
    assert (seen["ok"], seen["delay_s"]) == (True, pytest.approx(0.05, abs=0.01))


@pytest.mark.parametrize("looks", [0, 1])
def test_none_in_time_tells_nothing(observed, looks):
    assert observed(looks, kind="latency", targets="learner-1", delay="50ms", **{"for": "500ms"}) == {
        "ok": False, "error": "it was over before it could be measured"}


def test_a_rate_that_could_not_be_measured_in_time_is_left_out(observed):
    settings = {"kind": "latency", "targets": "learner-1", "delay": "50ms", "rate": "1MB/s", "for": "500ms"}
    assert "rate_bytes_per_s" not in observed(7, **settings)
    assert observed(7, **settings)["ok"]
    assert "rate_bytes_per_s" in observed(99, **settings)


def test_of_several_links_those_count_that_were_measured_in_time(observed):
    seen = observed(6, kind="latency", targets="syncer", delay="50ms", **{"for": "500ms"})
    assert (seen["ok"], seen["delay_s"]) == (True, pytest.approx(0.05, abs=0.01))


def test_a_probe_that_is_never_answered_tells_of_when_it_was_sent(observed):
    seen = observed(1, kind="partition", targets="learner-1", direction="upstream", **{"for": "500ms"})
    assert (seen["ok"], seen["silent_s"]) == (True, 1.0)
