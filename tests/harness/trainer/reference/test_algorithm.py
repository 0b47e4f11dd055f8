"""The reference's formulas, and the trainer's, which share no code: the same bits."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diloco_chaos.chaos.exploration.generate import plan_of
from diloco_chaos.chaos.exploration.strategies import scenario
from diloco_chaos.chaos.runner.baselines import synchronous
from diloco_chaos.chaos.runner.simulate import performed
from diloco_chaos.harness.base.tensors import digest as theirs
from diloco_chaos.harness.trainer.algorithm.fragments import plan_fragments
from diloco_chaos.harness.trainer.algorithm.merge import merge
from diloco_chaos.harness.trainer.algorithm.outer_optimizer import OuterStep
from diloco_chaos.harness.trainer.algorithm.outer_optimizer import nesterov as optimizer
from diloco_chaos.harness.trainer.model.quadratic import Quadratic
from diloco_chaos.harness.trainer.model.spec import MODELS
from diloco_chaos.harness.trainer.reference.algorithm import average, digest, fragments, merged, nesterov, radial
from diloco_chaos.harness.trainer.reference.problem import SHAPES, TABLES, Weights, initial

SPEC = MODELS["quadratic"]


def vectors(*rows):
    return [np.array(row, np.float32) for row in rows]


def test_the_average_weighs_by_its_factors():
    assert list(average(vectors([4, 0], [0, 8]), [0.25, 0.75])) == [1, 6]


def test_directions_are_averaged_apart_from_their_lengths():
    # Lengths 3 and 1 have the mean 2, and the directions that of a diagonal.
    assert list(radial(vectors([3, 0], [0, 1]), [0.5, 0.5])) == pytest.approx([2 / math.sqrt(2)] * 2)


def test_what_points_against_each_other_is_averaged():
    assert list(radial(vectors([3, 0], [-1, 0]), [0.5, 0.5])) == [1, 0]


def test_the_momentum_looks_ahead():
    value, momentum = ({"a": np.array([one], np.float32)} for one in (10.0, 2.0))
    after, kept = nesterov(value, momentum, {"a": np.array([1.0], np.float32)}, rate=0.5, mu=0.5)
    assert kept["a"][0] == 2.0  # .5 x 2 + 1
    assert after["a"][0] == 9.0  # 10 - .5 (1 + .5 x 2)


@pytest.mark.parametrize("count", [1, 2, 4, 8])
def test_the_trainer_cuts_the_model_into_the_same_fragments(count):
    sizes = {name: math.prod(shape) for name, shape in SHAPES.items()}
    assert SPEC.shapes() == SHAPES
    assert [one.names for one in plan_fragments(SPEC.shapes(), count, SPEC.embeddings())] == fragments(
        sizes, TABLES, count)


@pytest.mark.parametrize("name", ["tiny", "deep"])
@pytest.mark.parametrize("count", [1, 3, 8])
def test_fragments_of_other_models_are_the_same_too(name, count):
    spec = MODELS[name]
    sizes = {name: math.prod(shape) for name, shape in spec.shapes().items()}
    tables = sorted(spec.embeddings())
    assert [one.names for one in plan_fragments(spec.shapes(), count, spec.embeddings())] == fragments(
        sizes, tables, count)


@given(st.integers(0, 1 << 30), st.integers(1, 6), st.booleans(), st.floats(1e-3, 1e3))
def test_the_trainer_merges_and_steps_to_the_same_bits(seed, count, turned, size):
    chance = np.random.default_rng(seed)
    gradients = [{name: (size * chance.standard_normal(shape)).astype(np.float32) for name, shape in SHAPES.items()}
                 for _ in range(count)]
    weights = list(chance.uniform(1, 9, count))
    mine = merged(gradients, weights, TABLES if turned else tuple(SHAPES))
    assert digest(mine) == theirs(merge(gradients, weights, "rda" if turned else "average", SPEC.embeddings()))
    value, momentum = initial(seed), initial(seed + 1)
    for here, there in zip(nesterov(value, momentum, mine, 0.3, 0.8),
                           optimizer(value, momentum, mine, OuterStep(0.3, 0.8)), strict=True):
        assert digest(here) == theirs(there)


@given(st.integers(0, 1 << 30), st.integers(0, 5), st.integers(0, 2000), st.floats(1e-6, 1e-2))
def test_the_trainer_makes_the_same_steps(seed, learner, position, rate):
    mine, its = Weights(seed, learner), Quadratic(SPEC, SPEC.initial(seed), seed, learner)
    mine.put(initial(seed))
    for batch in range(position, position + 3):
        assert mine.step(batch, rate) == pytest.approx(its.train(batch, rate))
    assert digest(mine.of(tuple(SHAPES))) == theirs(its.read(tuple(SHAPES)))


def test_a_step_that_is_not_finite_is_not_made():
    weights = Weights(0, 0)
    weights.put(initial(0))
    weights.flat[7] = np.nan
    before = weights.flat.copy()
    assert math.isnan(weights.step(0, 1e-3))
    assert np.array_equal(before, weights.flat, equal_nan=True)


@pytest.mark.parametrize("cluster", [{}, {"batch": [1, 2, 4]}, {"warm_start": "30 steps"}, {"final_lr": 1.0}],
                         ids=["alike", "batches", "warm start", "no decay"])
def test_the_synchronous_run_ends_where_the_formulas_say(cluster):
    plan = plan_of(scenario(**cluster), [], 0)
    expected = plan.trainer.synchronous_loss()
    alone = synchronous(plan.without_faults()).model_copy(update={"deadline": 600.0})
    ended = performed(alone).final().loss
    assert ended - 1 == pytest.approx(expected - 1, rel=0.02, abs=2e-5)
