"""The pure part: validated settings, and when bytes may go on."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.links.fields import BadRequestError
from harness.links.toxics import REGISTRY, Bandwidth, Latency, Pace, Timeout, new_toxic, updated_toxic

WHOLE = st.integers(min_value=0, max_value=10**6)
ATTRIBUTES = {"latency": st.builds(Latency, WHOLE, WHOLE), "bandwidth": st.builds(Bandwidth, WHOLE),
              "timeout": st.builds(Timeout, WHOLE)}
SHORT = st.text("aZ0 /\x00é", max_size=4)
ANYTHING = st.recursive(st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | SHORT,
                        lambda inner: st.lists(inner) | st.dictionaries(SHORT, inner), max_leaves=5)


def pace(*toxics: Latency | Bandwidth | Timeout, now: float = 0.0, seed: int = 0) -> Pace:
    made = Pace(random.Random(seed))
    made.set(toxics, now)
    return made


def test_every_registered_type_is_tested_here() -> None:
    assert set(ATTRIBUTES) == set(REGISTRY)


@given(st.dictionaries(st.sampled_from(["name", "stream", "toxicity", "attributes", "other"]), ANYTHING),
       st.sampled_from([*REGISTRY, "noise"]))
def test_any_json_object_is_a_toxic_or_a_bad_request(body: dict[str, Any], kind: str) -> None:
    try:
        toxic = new_toxic({"type": kind, **body})
    except BadRequestError:
        return
    assert new_toxic(toxic.as_json()) == toxic


@given(st.sampled_from(sorted(REGISTRY)), st.data(), st.floats(0, 1))
def test_a_toxic_reads_back_as_written(kind: str, data: st.DataObject, toxicity: float) -> None:
    attributes = vars(data.draw(ATTRIBUTES[kind]))
    shown = new_toxic({"type": kind, "attributes": attributes, "toxicity": toxicity}).as_json()
    assert shown == {"name": f"{kind}_downstream", "type": kind, "stream": "downstream", "toxicity": toxicity,
                     "attributes": attributes}


def test_an_update_changes_only_what_it_names() -> None:
    toxic = new_toxic({"type": "latency", "stream": "upstream", "attributes": {"latency": 10, "jitter": 3}})
    assert updated_toxic(toxic, {}) == toxic
    changed = updated_toxic(toxic, {"attributes": {"latency": 20}, "type": "timeout", "name": "other"})
    assert changed.attributes == Latency(20, 3)
    assert (changed.name, changed.type, changed.stream) == (toxic.name, toxic.type, toxic.stream)


@pytest.mark.parametrize("wrong", [-1, 1.5, 100.0, True, "100", [], 2**63])
def test_an_attribute_is_a_whole_number_from_0(wrong: Any) -> None:
    with pytest.raises(BadRequestError, match="latency"):
        new_toxic({"type": "latency", "attributes": {"latency": wrong}})


@pytest.mark.parametrize("wrong", [-0.1, 1.1, "1", True, math.inf])
def test_toxicity_is_a_probability(wrong: Any) -> None:
    with pytest.raises(BadRequestError, match="toxicity"):
        new_toxic({"type": "timeout", "toxicity": wrong})


@given(WHOLE, WHOLE, st.floats(0, 1e6), st.integers())
def test_a_delay_stays_within_the_jitter(latency: int, jitter: int, arrival: float, seed: int) -> None:
    delay = pace(Latency(latency, jitter), seed=seed).ready_at(arrival) - arrival
    assert max(0, latency - jitter) / 1000 - 1e-6 <= delay <= (latency + jitter) / 1000 + 1e-6


def test_the_same_seed_draws_the_same_delays() -> None:
    one, other = pace(Latency(100, 50), seed=7), pace(Latency(100, 50), seed=7)
    assert [one.ready_at(0) for _ in range(20)] == [other.ready_at(0) for _ in range(20)]


def test_delays_add_up_and_the_lowest_rate_wins() -> None:
    slow = pace(Latency(100), Bandwidth(50), Latency(20), Bandwidth(10))
    assert slow.ready_at(5.0) == pytest.approx(5.12)
    assert slow.release_at(5.12, 10_000, now=5.12) == pytest.approx(6.12)


@given(st.integers(1, 10_000), st.lists(st.tuples(st.floats(0, 0.5), st.integers(1, 100_000)), min_size=1))
def test_a_rate_limit_bounds_every_prefix_from_above(rate: int, chunks: list[tuple[float, int]]) -> None:
    limited, now, released, carried, start = pace(Bandwidth(rate)), 0.0, 0.0, 0, chunks[0][0]
    for gap, size in chunks:
        now += gap
        earlier, released = released, limited.release_at(now, size, now=max(now, released))
        carried += size
        assert released >= max(earlier, now)
        assert carried <= (released - start) * rate * 1000 * (1 + 1e-9) + 1e-3


@given(st.floats(0.2, 1000))
def test_after_a_stall_a_rate_limit_makes_up_for_a_tenth_of_a_second_at_most(stall: float) -> None:
    limited = pace(Bandwidth(100))
    backlog = [limited.release_at(0.0, 1_000, now=stall) for _ in range(50)]
    assert sum(release <= stall for release in backlog) <= 10


def test_rate_0_lets_nothing_on_until_it_changes() -> None:
    limited = pace(Bandwidth(0))
    assert limited.release_at(0.0, 1, now=0.0) == math.inf
    limited.set([Bandwidth(1)], 5.0)
    assert limited.release_at(0.0, 1_000, now=5.0) == pytest.approx(6.0)


@given(st.integers(0, 10**6))
def test_a_slow_link_trickles_in_slices_of_at_most_100_ms(rate: int) -> None:
    size = pace(Bandwidth(rate)).slice_bytes
    assert size is not None
    assert 1 <= size <= max(1, rate * 100)


def test_without_toxics_nothing_is_held() -> None:
    plain = pace()
    assert plain.untouched
    assert (plain.slice_bytes, plain.swallows, plain.silence_s) == (None, False, None)
    assert plain.release_at(plain.ready_at(3.0), 10**9, now=3.0) == 3.0


def test_a_timeout_swallows_and_0_never_closes_by_itself() -> None:
    assert (pace(Timeout(0)).swallows, pace(Timeout(0)).silence_s) == (True, None)
    assert pace(Timeout(300), Timeout(200), Timeout(0)).silence_s == pytest.approx(0.2)


def test_a_delayed_link_has_the_wider_window() -> None:
    assert pace(Bandwidth(1)).window_bytes == pace().window_bytes
    assert pace(Latency(1), Bandwidth(1)).window_bytes > pace().window_bytes
