"""The model whose optimum is known."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diloco_chaos.harness.trainer.model.quadratic import FLOOR, Quadratic, QuadraticSpec
from diloco_chaos.harness.trainer.model.replica import GRADIENT

SPEC = QuadraticSpec(width=4, blocks=2, context=64)
NAMES = tuple(SPEC.shapes())


def model(seed=0, learner=0, values=None):
    return Quadratic(SPEC, SPEC.initial(0) if values is None else values, seed, learner)


def values(of):
    return np.concatenate([array.ravel() for array in of.read(NAMES).values()])


def test_the_gradient_is_the_slope_of_the_loss_but_for_noise_of_mean_zero():
    made = model()
    flat = np.mean([made.gradient(position)[1][GRADIENT] for position in range(512)], axis=0)
    begins = np.cumsum([0, *(array.size for array in made.read(NAMES).values())])
    mean = {name: flat[begin:] for name, begin in zip(NAMES, begins, strict=False)}
    total, step = values(made).size, 1e-2
    for name in ("embed.token", "block1.weight"):
        before = made.read((name,))[name]
        for place in (0, 7):
            sides = []
            for sign in (1, -1):
                moved = before.copy()
                moved.flat[place] += sign * step
                made.write({name: moved})
                sides.append(made.held_out_loss())
            made.write({name: before})
            slope = (sides[0] - sides[1]) / (2 * step) * total
            assert mean[name][place] == pytest.approx(slope, abs=0.5)


def test_training_goes_down_to_the_floor_and_not_below():
    made = model()
    losses = [made.train(position, 0.02) for position in range(400)]
    assert losses[0] > 2 * losses[-1]
    assert all(loss >= FLOOR for loss in losses)
    assert made.held_out_loss() < FLOOR + 0.5


def test_a_step_is_the_same_whether_trained_or_applied():
    trained, applied = model(), model()
    loss = trained.train(3, 0.01)
    told, gradient = applied.gradient(3)
    applied.apply(gradient, 0.01)
    assert loss == told
    np.testing.assert_allclose(values(trained), values(applied), rtol=1e-6)


def test_a_gradient_changes_nothing_and_belongs_to_whoever_asked():
    made = model()
    before = values(made)
    _, gradient = made.gradient(0)
    for array in gradient.values():
        array += 100
    made.gradient(0)
    assert np.array_equal(values(made), before)


def test_what_is_read_and_written_is_copied():
    given_values = SPEC.initial(0)
    made = model(values=given_values)
    made.train(0, 0.01)
    assert all(np.array_equal(given_values[name], SPEC.initial(0)[name]) for name in NAMES)
    read = made.read(("embed.token",))
    made.train(1, 0.01)
    assert not np.array_equal(read["embed.token"], made.read(("embed.token",))["embed.token"])


@given(st.sampled_from(NAMES), st.floats(-10, 10, width=32))
def test_writing_one_tensor_leaves_the_others(name, value):
    made = model()
    before = made.read(NAMES)
    made.write({name: np.full(SPEC.shapes()[name], value, np.float32)})
    after = made.read(NAMES)
    assert np.all(after[name] == np.float32(value))
    assert all(np.array_equal(before[other], after[other]) for other in NAMES if other != name)


def test_learners_share_the_optimum_and_not_the_noise():
    first, second = model(learner=0), model(learner=1)
    assert first.held_out_loss() == second.held_out_loss()
    first.train(0, 0.01)
    second.train(0, 0.01)
    assert not np.array_equal(values(first), values(second))


def test_a_seed_gives_one_problem_and_another_seed_another():
    assert model(seed=1).held_out_loss() == model(seed=1).held_out_loss() != model(seed=2).held_out_loss()
    assert not np.array_equal(SPEC.initial(1)["embed.token"], SPEC.initial(2)["embed.token"])


def test_two_replicas_of_one_learner_take_the_same_course():
    first, second = model(), model()
    for position in range(20):
        assert first.train(position, 0.01) == second.train(position, 0.01)
    assert np.array_equal(values(first), values(second))
