"""Bytes of a message."""

import numpy as np
import pytest

from diloco_chaos.harness.simulation.sizes import Sizes
from diloco_chaos.harness.trainer.protocol.messages import OuterGradient
from diloco_chaos.harness.trainers.wire.frames import encode

GRADIENT = OuterGradient(round=1, fragment=2, base_version=3, first_step=4, last_step=5, steps=2, tokens=6, digest="")
TENSORS = {"a": np.zeros(100, np.float32), "b": np.zeros(10, np.int8)}


def test_a_message_is_as_large_as_its_frame():
    assert Sizes().of(GRADIENT, TENSORS) == len(encode(GRADIENT, TENSORS))


@pytest.mark.parametrize("payload", [1e6, 0.5])
def test_where_a_small_model_stands_for_a_large_one_tensors_are_larger_and_nothing_else_is(payload):
    sizes, plain = Sizes(payload), Sizes()
    assert sizes.of(GRADIENT, TENSORS) == round(plain.of(GRADIENT, TENSORS) + (payload - 1) * 410)
    bare = OuterGradient(round=1, fragment=7, base_version=3, first_step=0, last_step=0, steps=0, tokens=0, digest="")
    assert sizes.of(bare, {}) == plain.of(bare, {})
