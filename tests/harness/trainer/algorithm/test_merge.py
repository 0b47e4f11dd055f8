"""Merging and the outer step, against plain references written from the formulas."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from diloco_chaos.harness.trainer.algorithm.merge import merge, token_weight
from diloco_chaos.harness.trainer.algorithm.outer_optimizer import OuterStep, nesterov

VALUES = st.just(0.0) | st.floats(-1, 1, width=16)
SHAPED = hnp.arrays(np.float32, st.shared(hnp.array_shapes(max_dims=2, max_side=6), key="shape"), elements=VALUES)
ARRAYS = st.builds(lambda array, size: array * np.float32(size), SHAPED, st.sampled_from([1e-30, 1e-6, 1, 1e6, 1e30]))
WEIGHTS = st.floats(0.1, 1e6)
PARTS = st.lists(st.tuples(ARRAYS, WEIGHTS), min_size=1, max_size=5)


def assert_near(found, expected, scale):
    """Equal but for what float32 rounds off: a few units in the last place of the largest number that took part."""
    assert found.dtype == np.float32
    assert np.abs(found.astype(np.float64) - expected).max() <= 4e-6 * scale


def rda(*arrays, weights=None):
    parts = [{"x": np.asarray(array, np.float32)} for array in arrays]
    return merge(parts, weights or [1.0] * len(arrays), "rda", ())["x"]


def largest(arrays):
    return max(float(np.abs(array).max()) for array in arrays)


def reference_rda(arrays, weights):
    """(sum w|v| / sum w) * phi(sum w phi(v) / sum w), in float64."""
    total = sum(weights)
    radius = sum(w * np.linalg.norm(v.astype(np.float64)) for v, w in zip(arrays, weights, strict=True)) / total
    direction = np.zeros(arrays[0].shape)
    for v, w in zip(arrays, weights, strict=True):
        norm = np.linalg.norm(v.astype(np.float64))
        if norm > 0:
            direction += w / total * v.astype(np.float64) / norm
    length = np.linalg.norm(direction)
    return radius * direction / length if length > 0.1 else None  # shorter, and its rounding errors are drawn out


@given(PARTS)
def test_rda_is_the_mean_norm_times_the_direction_of_the_mean_direction(parts):
    arrays, weights = [a for a, _ in parts], [w for _, w in parts]
    expected = reference_rda(arrays, weights)
    if expected is None:
        return
    merged = merge([{"x": a} for a in arrays], weights, "rda", ())["x"]
    assert_near(merged, expected, 10 * max(np.linalg.norm(array.astype(np.float64)) for array in arrays))


@pytest.mark.parametrize("size", [1e-37, 1e-25, 1e-18, 1, 1e18, 1e25, 1e33])
def test_norms_far_outside_of_what_float32_can_square_are_merged_like_others(size):
    random = np.random.default_rng(0)
    arrays = [np.asarray(random.integers(-3, 4, (70, 1000)) * size, np.float32) for _ in range(3)]
    assert_near(rda(*arrays, weights=[1.0, 2.0, 5.0]), reference_rda(arrays, [1.0, 2.0, 5.0]), largest(arrays))


def test_a_learner_of_another_order_of_magnitude_turns_the_step_as_much_as_its_weight_says():
    random = np.random.default_rng(0)
    arrays = [np.asarray(random.standard_normal(3000) * size, np.float32) for size in (1e-30, 1, 1e20)]
    merged = rda(*arrays)
    assert_near(merged, reference_rda(arrays, [1, 1, 1]), largest([merged]))


def test_learners_that_nearly_cancel_are_merged_as_exactly_as_others():
    random = np.random.default_rng(0)
    one, little = random.standard_normal((2, 5000))
    arrays = [np.asarray(part, np.float32) for part in (one + 1e-3 * little, -one)]
    exact = [array.astype(np.float64) for array in arrays]
    direction = sum(array / np.linalg.norm(array) for array in exact)
    expected = np.mean([np.linalg.norm(array) for array in exact]) * direction / np.linalg.norm(direction)
    assert_near(rda(*arrays), expected, np.abs(expected).max())


@pytest.mark.parametrize("order", ["C", "F"])
def test_large_tensors_are_merged_like_small_ones(order):
    random = np.random.default_rng(0)
    arrays = [np.asarray(random.standard_normal((300, 500)), np.float32, order=order) for _ in range(3)]
    merged = merge([{"x": a} for a in arrays], [1.0, 2.0, 5.0], "rda", ())["x"]
    assert_near(merged, reference_rda(arrays, [1.0, 2.0, 5.0]), largest(arrays))
    averaged = merge([{"x": a} for a in arrays], [1.0, 2.0, 5.0], "average", ())["x"]
    assert_near(averaged, np.average(arrays, axis=0, weights=[1.0, 2.0, 5.0]), largest(arrays))


@given(PARTS)
def test_the_average_is_weighted_by_shares(parts):
    arrays, weights = [a for a, _ in parts], [w for _, w in parts]
    expected = np.average([a.astype(np.float64) for a in arrays], axis=0, weights=weights)
    for method, averaged in (("average", ()), ("rda", ("x",))):
        merged = merge([{"x": a} for a in arrays], weights, method, averaged)["x"]
        assert_near(merged, expected, largest(arrays))


@given(ARRAYS, WEIGHTS, st.sampled_from(["rda", "average"]))
def test_equal_learners_merge_to_themselves(array, weight, method):
    merged = merge([{"x": array}] * 3, [weight] * 3, method, ())["x"]
    assert_near(merged, array, largest([array]))


@given(PARTS, st.floats(0.01, 1e4), st.sampled_from(["rda", "average"]))
def test_only_the_ratios_of_weights_count(parts, scale, method):
    gradients, weights = [{"x": a} for a, _ in parts], [w for _, w in parts]
    if method == "rda" and reference_rda([a for a, _ in parts], weights) is None:
        return
    one = merge(gradients, weights, method, ())["x"]
    other = merge(gradients, [w * scale for w in weights], method, ())["x"]
    assert_near(one, other, 10 * max(np.linalg.norm(a.astype(np.float64)) for a, _ in parts))


@given(ARRAYS, WEIGHTS, st.sampled_from(["rda", "average"]))
def test_a_single_learner_is_taken_as_it_is(array, weight, method):
    assert_near(merge([{"x": array}], [weight], method, ())["x"], array, largest([array]))


def test_opposite_directions_fall_back_to_the_average():
    np.testing.assert_allclose(rda([2, 0], [-1, 0]), [0.5, 0])


def test_nearly_opposite_directions_lose_nothing_of_their_length():
    turned = np.deg2rad(178)
    merged = rda([1, 0], [np.cos(turned), np.sin(turned)])
    np.testing.assert_allclose(merged, [np.cos(turned / 2), np.sin(turned / 2)], rtol=1e-4)


def test_a_learner_that_did_not_move_shortens_the_step_but_does_not_turn_it():
    np.testing.assert_allclose(rda([3, 4], [0, 0]), [1.5, 2.0], rtol=1e-6)


def test_nothing_to_merge_is_refused():
    with pytest.raises(ValueError, match="contributions"):
        merge([], [], "rda", ())
    with pytest.raises(ValueError, match="positive"):
        merge([{"x": np.ones(1, np.float32)}], [0.0], "rda", ())


@given(st.integers(0, 10**9), st.integers(0, 10**4))
def test_the_weight_is_tokens_times_tokens_per_step(tokens, steps):
    assert token_weight(tokens, steps) == pytest.approx(tokens * tokens / steps if steps else 0)


@given(st.lists(ARRAYS, min_size=2, max_size=4), st.floats(0.015625, 2, width=32), st.floats(0, 0.875, width=32))
def test_nesterov_follows_its_formula_whatever_the_gradients(arrays, lr, mu):
    start, *gradients = arrays
    value, momentum = {"x": start}, {"x": np.zeros_like(start)}
    theta, buffer = start.astype(np.float64), np.zeros(start.shape)
    for gradient in gradients:
        value, momentum = nesterov(value, momentum, {"x": gradient}, OuterStep(lr, mu))
        buffer = mu * buffer + gradient
        theta = theta - lr * (gradient + mu * buffer)
        assert_near(momentum["x"], buffer, 8 * largest(gradients))
        assert_near(value["x"], theta, largest([start]) + 32 * largest(gradients))
