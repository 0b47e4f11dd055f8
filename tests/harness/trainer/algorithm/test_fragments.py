"""Fragments: every tensor once, sizes balanced, embeddings apart."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diloco_chaos.harness.trainer.algorithm.fragments import plan_fragments
from diloco_chaos.harness.trainer.config.cluster_config import TrainerConfig
from diloco_chaos.harness.trainer.model.spec import MODELS

SHAPES = st.dictionaries(st.text("abcdef", min_size=1, max_size=6), st.tuples(st.integers(1, 40), st.integers(1, 40)),
                         min_size=1, max_size=20)


@given(SHAPES, st.integers(1, 8))
def test_every_tensor_is_in_exactly_one_fragment(shapes, count):
    try:
        fragments = plan_fragments(shapes, count)
    except ValueError:
        return
    names = [name for fragment in fragments for name in fragment.names]
    assert sorted(names) == sorted(shapes)
    assert all(fragment.size == sum(math.prod(shapes[name]) for name in fragment.names) for fragment in fragments)


@given(SHAPES, st.integers(1, 8))
def test_no_fragment_is_larger_than_twice_the_mean(shapes, count):
    try:
        fragments = plan_fragments(shapes, count)
    except ValueError:
        return
    assert max(f.size for f in fragments) * len(fragments) <= 2 * sum(f.size for f in fragments)


def test_the_order_in_which_tensors_are_named_does_not_matter():
    shapes = MODELS["tiny"].shapes()
    assert plan_fragments(shapes, 8) == plan_fragments(dict(reversed(shapes.items())), 8)


def test_embeddings_share_a_fragment_with_nothing_else():
    fragments = TrainerConfig().fragment_table()
    assert len(fragments) == 8
    embeddings = MODELS["tiny"].embeddings()
    assert [set(f.names) for f in fragments if embeddings.intersection(f.names)] == [set(embeddings)]


def test_more_fragments_than_a_model_can_be_split_into_evenly_are_refused_with_advice():
    with pytest.raises(ValueError, match="fewer fragments"):
        plan_fragments(MODELS["tiny"].shapes(), 24, MODELS["tiny"].embeddings())
