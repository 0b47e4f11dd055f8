"""What rounding costs at most, and what it never does."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from diloco_chaos.harness.base.tensors import digest, shapes
from diloco_chaos.harness.trainer.algorithm.codec import BLOCK, Codec, CompressError, bits_per_value
from diloco_chaos.harness.trainer.protocol.messages import MESSAGES, Broadcast
from diloco_chaos.harness.trainers.wire.frames import Decoder, encode

LOSSY = ["bfloat16", "int8", "int4"]
MARGIN = 1 + 2**-8  # by so much a scale's own rounding may lengthen the step from one integer to the next
floats = st.floats(-2.0**100, 2.0**100, width=32, allow_subnormal=False)
any_array = arrays(np.float32, array_shapes(max_dims=3, max_side=12), elements=floats)
named = st.dictionaries(st.text("abc", min_size=1, max_size=3), any_array, min_size=1, max_size=4)


def there_and_back(codec, tensors, key="key"):
    return codec.unpack(codec.pack(tensors, key), shapes(tensors))


@given(named)
def test_float32_is_left_as_it_is(tensors):
    assert Codec().pack(tensors, "") is tensors
    assert Codec().unpack(tensors, {}) is tensors


@pytest.mark.parametrize("stochastic", [False, True])
@pytest.mark.parametrize(("precision", "largest"), [("int8", 127), ("int4", 7)])
@given(tensors=named)
def test_an_integer_is_off_by_no_more_than_the_rounding(precision, largest, stochastic, tensors):
    read = there_and_back(Codec(precision, stochastic), tensors)
    assert shapes(read) == shapes(tensors)
    for name, array in tensors.items():
        flat, found = array.ravel().astype(np.float64), read[name].ravel().astype(np.float64)
        for begin in range(0, flat.size, BLOCK):
            block = slice(begin, begin + BLOCK)
            step = np.abs(flat[block]).max() / largest * MARGIN
            tiny = largest * 2.0**-134  # no bfloat16 is nearer to a scale than that
            assert np.abs(flat[block] - found[block]).max() <= step * (1 if stochastic else 0.5) * (1 + 1e-6) + tiny


@given(named)
def test_a_bfloat16_is_off_by_half_of_its_last_place(tensors):
    read = there_and_back(Codec("bfloat16"), tensors)
    for name, array in tensors.items():
        assert (np.abs(array.astype(np.float64) - read[name]) <= np.abs(array) * 2.0**-8).all()


@pytest.mark.parametrize("precision", LOSSY)
def test_zeros_stay_zeros_and_the_tiniest_numbers_do_no_harm(precision):
    tensors = {"a": np.zeros((3, 5), np.float32), "b": np.full(70, 1e-45, np.float32), "c": np.float32([3e38, -3e38])}
    read = there_and_back(Codec(precision), tensors)
    assert not read["a"].any()
    assert np.isfinite(read["b"]).all()
    assert np.allclose(read["c"], tensors["c"], rtol=0.01)


@pytest.mark.parametrize("precision", LOSSY)
@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_not_finite_when_it_arrives(precision, poison):
    tensors = {"a": np.ones(130, np.float32)}
    tensors["a"][77] = poison
    assert not np.isfinite(there_and_back(Codec(precision), tensors)["a"]).all()


@pytest.mark.parametrize("precision", LOSSY)
@pytest.mark.parametrize("stochastic", [False, True])
@given(tensors=named)
def test_the_same_key_gives_the_same_bytes(precision, stochastic, tensors):
    codec = Codec(precision, stochastic)
    assert digest(codec.pack(tensors, "k")) == digest(codec.pack(dict(reversed(tensors.items())), "k"))


def test_stochastic_rounding_is_right_on_average_where_the_nearest_is_not():
    tensors = {"a": np.full(640, 0.3, np.float32)}
    tensors["a"][::BLOCK] = 7  # so that a step is 1
    chance = [there_and_back(Codec("int4", True), tensors, str(key))["a"] for key in range(200)]
    others = np.arange(640) % BLOCK != 0
    assert not there_and_back(Codec("int4"), tensors)["a"][others].any()
    assert abs(np.mean(chance, axis=0)[others].mean() - 0.3) < 0.01


@pytest.mark.parametrize("precision", [*LOSSY, "float32"])
def test_the_bits_of_a_value_are_what_the_payload_takes(precision):
    tensors = {"a": np.ones((64, 64), np.float32), "b": np.ones(BLOCK, np.float32)}
    taken = sum(array.nbytes for array in Codec(precision).pack(tensors, "").values())
    assert taken * 8 == bits_per_value(precision) * (64 * 64 + BLOCK)


@pytest.mark.parametrize("precision", LOSSY)
def test_a_payload_of_another_model_is_told(precision):
    tensors = {"a": np.ones(100, np.float32), "b": np.ones((2, 3), np.float32)}
    codec = Codec(precision)
    payload = codec.pack(tensors, "")
    for wrong in ({}, tensors, payload | {"codes": payload["codes"][:-1]}, payload | {"codes": payload["codes"] * 1.0}):
        with pytest.raises(CompressError, match=r"should be .* and is "):
            codec.unpack(wrong, shapes(tensors))
    with pytest.raises(CompressError):
        codec.unpack(payload, {"a": (1000,)})


@pytest.mark.parametrize("precision", LOSSY)
def test_a_payload_crosses_the_wire_whole(precision):
    payload = Codec(precision).pack({"a": np.linspace(-1, 1, 1000, dtype=np.float32)}, "")
    [(_, arrived)] = Decoder(MESSAGES).feed(encode(Broadcast(fragment=0, version=1, digest="", base=0), payload))
    assert digest(arrived) == digest(payload)
