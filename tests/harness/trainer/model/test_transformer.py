"""The real model: it learns, it can't see the future, and two learners that average learn as one."""

import numpy as np
import pytest
import torch
from torch.nn import functional

from diloco_chaos.harness.trainer.config.cluster_config import TrainerConfig
from diloco_chaos.harness.trainer.model.corpus import Corpus, MarkovSource, materialize, needed_bytes
from diloco_chaos.harness.trainer.model.spec import MODELS
from diloco_chaos.harness.trainer.model.transformer import Transformer
from inmemory import InMemoryCluster


@pytest.fixture(scope="module")
def markov(tmp_path_factory):
    torch.set_num_threads(1)
    return materialize("markov", tmp_path_factory.mktemp("corpus"), needed_bytes(16))[0]


@pytest.fixture
def config():
    return TrainerConfig.model_validate({"model": "micro", "fragments": 4, "budget": 250, "corpus": "markov",
                                         "lr": 8e-3, "synchronous_lr": 8e-3, "snapshots": 4})


def test_gradients_are_those_of_the_loss(markov, config):
    corpus = Corpus(markov, 16, 1, 2, 0)
    model = Transformer(config.spec, config.spec.initial(0), corpus, 0)
    loss, gradient = model.gradient(0)
    direction = gradient["gradient"] / np.linalg.norm(gradient["gradient"])
    names = tuple(config.spec.shapes())
    start, at, moved = model.read(names), 0, {}
    for name in names:
        size = start[name].size
        moved[name] = start[name] + 1e-2 * direction[at:at + size].reshape(start[name].shape)
        at += size
    model.write(moved)
    assert (model.gradient(0)[0] - loss) / 1e-2 == pytest.approx(np.linalg.norm(gradient["gradient"]), rel=0.05)


def test_a_byte_in_the_future_changes_no_prediction_before_it(markov, config):
    model = Transformer(config.spec, config.spec.initial(0), Corpus(markov, 16, 1, 2, 0), 0)
    inputs = torch.randint(0, 256, (1, 16), generator=torch.Generator().manual_seed(0))
    targets = torch.zeros(1, 16, dtype=torch.long)
    changed = inputs.clone()
    changed[0, -1] = (changed[0, -1] + 1) % 256
    def losses(tokens):
        with torch.no_grad():
            return functional.cross_entropy(model.logits(tokens)[0], targets[0], reduction="none")
    before, after = losses(inputs), losses(changed)
    assert torch.equal(before[:-1], after[:-1])
    assert before[-1] != after[-1]


def test_decoupled_training_nears_the_entropy_rate_and_never_goes_below(markov, config):
    initial, corpus = config.spec.initial(0), Corpus(markov, 16, 4, 16, 0)
    cluster = InMemoryCluster(config, lambda index: Transformer(config.spec, initial, corpus, index), initial)
    cluster.run()
    judge = Transformer(config.spec, initial, corpus, 0)
    losses = []
    for _, tensors in cluster.snapshots:
        judge.write(tensors)
        losses.append(judge.held_out_loss())
    floor = MarkovSource().entropy_rate()
    assert losses[0] > 5.0
    assert floor - 0.02 < losses[-1] < floor + 0.4  # the held-out sample itself may be easier by a hundredth


def test_reading_and_writing_fragments_is_lossless(markov, config):
    model = Transformer(config.spec, config.spec.initial(3), Corpus(markov, 16, 1, 2, 0), 0)
    names = config.fragment_table()[1].names
    before = model.read(names)
    model.train(0, 1e-2)
    assert any(not np.array_equal(before[name], model.read((name,))[name]) for name in names)
    model.write(before)
    assert all(np.array_equal(before[name], model.read((name,))[name]) for name in names)


@pytest.mark.parametrize("name", ["micro", "tiny", "top1", "top2"])
def test_with_autocast_the_forward_pass_is_coarser_and_everything_else_is_not(markov, name):
    spec = MODELS[name]
    corpus = Corpus(markov, spec.context, 1, 2, 0)
    exact, coarse = (Transformer(spec, spec.initial(0), corpus, 0, autocast=autocast) for autocast in (False, True))
    (loss, gradient), (coarse_loss, coarse_gradient) = (
        (found, parts["gradient"]) for found, parts in (exact.gradient(0), coarse.gradient(0)))
    assert coarse_loss != loss
    assert coarse_loss == pytest.approx(loss, rel=0.01)
    assert coarse_gradient.dtype == np.float32
    cosine = coarse_gradient @ gradient / np.linalg.norm(gradient) / np.linalg.norm(coarse_gradient)
    assert 0.99 < cosine < 1
    assert coarse.held_out_loss() == exact.held_out_loss()
    coarse.train(0, 1e-3)
    assert {array.dtype for array in coarse.state().values()} == {np.dtype(np.float32)}


def test_with_autocast_it_learns_as_well(markov, config):
    ends = []
    for autocast in (False, True):
        model = Transformer(config.spec, config.spec.initial(0), Corpus(markov, 16, 1, 16, 0), 0, autocast=autocast)
        for position in range(150):
            model.train(position, 8e-3)
        ends.append(model.held_out_loss())
    assert ends[1] == pytest.approx(ends[0], rel=0.02)
    assert ends[0] != ends[1]
