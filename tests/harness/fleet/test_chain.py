"""Which pauses come about, however many there are."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diloco_chaos.harness.fleet.chain import followed


def walked(begins, ends):
    places, at = [], 0
    while at < len(begins):
        places.append(at)
        end, at = ends[at], at + 1
        while at < len(begins) and begins[at] < end:
            at += 1
    return places


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 12)), max_size=60))
def test_those_come_about_that_a_walk_meets(pauses):
    begins = np.cumsum([gap for gap, _ in pauses], dtype=float)
    ends = begins + np.array([length for _, length in pauses], float)
    assert followed(begins, ends).tolist() == walked(begins.tolist(), ends.tolist())


@pytest.mark.parametrize("longest", [0.1, 2, 12, 700, 9000])
@pytest.mark.parametrize("seed", range(4))
def test_of_many_as_well_though_stretches_are_walked_at_the_same_time(longest, seed):
    chance = np.random.default_rng(seed)
    begins = np.cumsum(chance.exponential(1.0, int(chance.integers(5_000, 20_000))))
    ends = begins + longest * chance.random(len(begins))
    assert followed(begins, ends).tolist() == walked(begins.tolist(), ends.tolist())


def test_a_stretch_that_never_ends_is_walked_from_its_beginning():
    begins = np.arange(10_000.0)
    assert followed(begins, begins + 2).tolist() == list(range(0, 10_000, 2))
