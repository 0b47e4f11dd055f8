"""Failing memory: which values are hit, and how the order reaches its process."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from diloco_chaos.harness.trainers.core.memory import Corruption, order, ordered

SEEDS = st.integers(0, 2**31 - 1)


def hit(content, values, seed, size=100):
    memory = np.linspace(0.5, 1.5, size, dtype=np.float32)
    Corruption("f1", "weights", content, values, seed).apply(memory)
    return memory


@given(SEEDS, st.integers(1, 300))
def test_so_many_values_become_nan_and_all_others_stay(seed, values):
    memory = hit("nan", values, seed)
    assert np.isnan(memory).sum() == min(values, 100)
    assert np.array_equal(memory[~np.isnan(memory)], np.linspace(0.5, 1.5, 100, dtype=np.float32)[~np.isnan(memory)])


@given(SEEDS, st.integers(1, 100))
def test_one_bit_of_each_value_is_turned_over(seed, values):
    before = np.linspace(0.5, 1.5, 100, dtype=np.float32).view(np.uint32)
    differing = np.bitwise_xor(before, hit("bits", values, seed).view(np.uint32))
    assert [bin(word).count("1") for word in differing[differing != 0]] == [1] * values


@given(SEEDS)
def test_the_same_seed_hits_the_same_values_and_bits(seed):
    assert np.array_equal(hit("bits", 7, seed).view(np.uint32), hit("bits", 7, seed).view(np.uint32))


def test_an_order_is_taken_once_by_the_process_that_it_is_for(tmp_path):
    corruption = Corruption("f1.2", "moments", "bits", 3, 5)
    assert ordered(tmp_path, "learner-1", 0) == []
    order(tmp_path, "learner-1", 1, corruption)
    assert ordered(tmp_path, "learner-1", 0) == ordered(tmp_path, "learner-11", 1) == []
    assert ordered(tmp_path, "learner-1", 1) == [corruption]
    assert ordered(tmp_path, "learner-1", 1) == []
