"""The reference's rounding: as docs/protocol.md says, and as the trainer's codec does, which shares no code with it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from diloco_chaos.harness.trainer.algorithm.codec import Codec
from diloco_chaos.harness.trainer.reference.codec import Rounding

VALUES = st.floats(-2.0**99, 2.0**99, width=32)
TENSORS = st.fixed_dictionaries({"b": arrays(np.float32, (5, 30), elements=VALUES),
                                 "a": arrays(np.float32, st.integers(1, 70), elements=VALUES)})


def bytes_of(tensors):
    return {name: array.tobytes() for name, array in tensors.items()}


@pytest.mark.parametrize("precision", ["bfloat16", "int8", "int4"])
@given(TENSORS, st.booleans(), st.booleans(), st.text())
def test_the_trainer_rounds_to_the_same_bits(precision, tensors, stochastic, feedback, key):
    read, cost = Rounding(precision, stochastic, feedback).sent(tensors, {}, key)
    sent = Codec(precision, stochastic, feedback).send(tensors, {}, key)
    assert bytes_of(read) == bytes_of(sent.read)
    assert bytes_of(cost) == bytes_of(sent.error)


def test_what_travels_as_it_is_costs_nothing():
    tensors = {"a": np.array([0.1], np.float32)}
    assert Rounding("float32", False, True).sent(tensors, {}, "") == (tensors, {})


@pytest.mark.parametrize(("value", "nearest"), [(1.0, 1.0), (1.00390625, 1.0), (1.01171875, 1.015625),
                                                (-3.14159, -3.140625)])
def test_a_bfloat16_is_the_nearest_and_of_two_the_even_one(value, nearest):
    read, _ = Rounding("bfloat16", False, False).sent({"a": np.array([value], np.float32)}, {}, "")
    assert read["a"][0] == np.float32(nearest)


def test_integers_have_the_largest_value_of_their_block_and_lose_the_rest():
    read, cost = Rounding("int4", False, True).sent({"a": np.array([7.0, 3.4, -0.4], np.float32)}, {}, "")
    assert list(read["a"]) == [7.0, 3.0, 0.0]
    assert list(cost["a"]) == pytest.approx([0.0, 0.4, -0.4])
    again, _ = Rounding("int4", False, True).sent({"a": np.array([7.0, 3.4, -0.4], np.float32)}, cost, "")
    assert list(again["a"]) == [7.0, 4.0, -1.0]
