"""Which places are met, however many there are."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diloco_chaos.harness.fleet.chain import followed


def walked(following):
    places, at = [], 0
    while at < len(following):
        places.append(at)
        at = int(following[at])
    return places


@given(st.lists(st.integers(1, 9), max_size=60))
def test_of_few_places_those_are_met_that_a_walk_meets(leaps):
    following = np.arange(len(leaps)) + np.array(leaps, int)
    assert followed(following).tolist() == walked(following)


@pytest.mark.parametrize("longest", [1, 2, 40, 700, 9000])
@pytest.mark.parametrize("seed", range(4))
def test_of_many_as_well_though_they_are_walked_in_blocks(longest, seed):
    chance = np.random.default_rng(seed)
    count = int(chance.integers(5_000, 20_000))
    following = np.arange(count) + chance.integers(1, longest + 1, count)
    assert followed(following).tolist() == walked(following)


def test_walks_that_never_meet_are_told_apart():
    following = np.arange(10_000) + 2  # who begins at an odd place never comes to an even one
    following[255] = 257
    assert followed(following).tolist() == list(range(0, 10_000, 2))
