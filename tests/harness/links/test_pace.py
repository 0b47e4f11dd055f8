"""The arithmetic of when bytes may go on."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diloco_chaos.harness.links.pace import Pace
from diloco_chaos.harness.links.toxics import (
    Attributes,
    BandwidthAttributes,
    LatencyAttributes,
    LimitDataAttributes,
    ResetPeerAttributes,
    SlicerAttributes,
    SlowCloseAttributes,
    TimeoutAttributes,
)

WHOLE = st.integers(min_value=0, max_value=10**6)


def pace(*toxics: Attributes, now: float = 0.0, seed: int = 0) -> Pace:
    made = Pace(random.Random(seed))
    made.set({str(place): toxic for place, toxic in enumerate(toxics)}, now)
    return made


@given(WHOLE, WHOLE, st.floats(0, 1e6), st.integers())
def test_a_delay_stays_within_the_jitter(latency: int, jitter: int, arrival: float, seed: int) -> None:
    delay = pace(LatencyAttributes(latency, jitter), seed=seed).ready_at(arrival) - arrival
    assert max(0, latency - jitter) / 1000 - 1e-6 <= delay <= (latency + jitter) / 1000 + 1e-6


def test_the_same_seed_draws_the_same_delays() -> None:
    one, other = pace(LatencyAttributes(100, 50), seed=7), pace(LatencyAttributes(100, 50), seed=7)
    assert [one.ready_at(0) for _ in range(20)] == [other.ready_at(0) for _ in range(20)]


def test_delays_add_up_and_the_lowest_rate_wins() -> None:
    slow = pace(LatencyAttributes(100), BandwidthAttributes(50), LatencyAttributes(20), BandwidthAttributes(10))
    assert slow.ready_at(5.0) == pytest.approx(5.12)
    assert slow.release_at(5.12, 10_000, now=5.12) == pytest.approx(6.12)


@given(st.integers(1, 10_000), st.lists(st.tuples(st.floats(0, 0.5), st.integers(1, 100_000)), min_size=1))
def test_a_rate_limit_bounds_every_prefix_from_above(rate: int, chunks: list[tuple[float, int]]) -> None:
    limited, now, released, carried, start = pace(BandwidthAttributes(rate)), 0.0, 0.0, 0, chunks[0][0]
    for gap, size in chunks:
        now += gap
        earlier, released = released, limited.release_at(now, size, now=max(now, released))
        carried += size
        assert released >= max(earlier, now)
        assert carried <= (released - start) * rate * 1000 * (1 + 1e-9) + 1e-3


@given(st.floats(0.2, 1000))
def test_after_a_stall_a_rate_limit_makes_up_for_a_tenth_of_a_second_at_most(stall: float) -> None:
    limited = pace(BandwidthAttributes(100))
    backlog = [limited.release_at(0.0, 1_000, now=stall) for _ in range(50)]
    assert sum(release <= stall for release in backlog) <= 10


def test_rate_0_lets_nothing_on_until_it_changes() -> None:
    limited = pace(BandwidthAttributes(0))
    assert limited.release_at(0.0, 1, now=0.0) == math.inf
    limited.set({"0": BandwidthAttributes(1)}, 5.0)
    assert limited.release_at(0.0, 1_000, now=5.0) == pytest.approx(6.0)


@given(st.integers(0, 10**6))
def test_a_slow_link_trickles_in_slices_of_at_most_100_ms(rate: int) -> None:
    assert 1 <= pace(BandwidthAttributes(rate)).slice(10**9) <= max(1, rate * 100)


def test_without_toxics_nothing_is_held() -> None:
    plain = pace()
    assert plain.untouched
    assert (plain.slice(10**9), plain.exhausted) == (10**9, False)
    assert (plain.swallows, plain.silence_s, plain.reset_s, plain.end_delay_s) == (False, None, None, 0)
    assert plain.release_at(plain.ready_at(3.0), 10**9, now=3.0) == 3.0


def test_a_timeout_swallows_and_0_never_closes_by_itself() -> None:
    assert (pace(TimeoutAttributes(0)).swallows, pace(TimeoutAttributes(0)).silence_s) == (True, None)
    assert pace(TimeoutAttributes(300), TimeoutAttributes(200), TimeoutAttributes(0)).silence_s == pytest.approx(0.2)


def test_a_delayed_link_has_the_wider_window() -> None:
    assert pace(BandwidthAttributes(1)).window_bytes == pace().window_bytes
    assert pace(LatencyAttributes(1), BandwidthAttributes(1)).window_bytes > pace().window_bytes


def test_the_soonest_reset_and_all_end_delays_count() -> None:
    mixed = pace(ResetPeerAttributes(300), SlowCloseAttributes(100), ResetPeerAttributes(200), SlowCloseAttributes(50))
    assert (mixed.reset_s, mixed.end_delay_s) == (pytest.approx(0.2), pytest.approx(0.15))


@given(st.integers(1, 10**6), st.data(), st.integers(1, 10**6))
def test_a_slice_keeps_to_its_size(average: int, data: st.DataObject, available: int) -> None:
    variation = data.draw(st.integers(0, average - 1))
    size = pace(SlicerAttributes(average, variation), seed=data.draw(st.integers())).slice(available)
    assert min(available, average - variation) <= size <= min(available, average + variation)


def test_the_smallest_slice_and_the_longest_gap_win() -> None:
    mixed = pace(SlicerAttributes(100, 0, 2_000), BandwidthAttributes(1000), SlicerAttributes(10, 0, 1_000))
    assert mixed.slice(1_000) == 10
    assert [mixed.release_at(0.0, 1_000, now=0.0) for _ in range(3)] == pytest.approx([0.001, 0.004, 0.007])


def test_a_limit_takes_the_rest_of_what_is_available() -> None:
    limited = pace(LimitDataAttributes(15), LimitDataAttributes(20))
    assert limited.slice(10) == 10
    limited.carry(10)
    assert (limited.slice(10), limited.exhausted) == (5, False)
    limited.carry(5)
    assert (limited.slice(10), limited.exhausted) == (0, True)
