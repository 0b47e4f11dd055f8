"""A mixture of experts against a plain reading of the papers' formulas, one token at a time."""

import numpy as np
import pytest
import torch

from diloco_chaos.harness.trainer.model.corpus import Corpus, materialize, needed_bytes
from diloco_chaos.harness.trainer.model.experts import feed_forward, mixture
from diloco_chaos.harness.trainer.model.spec import ModelSpec
from diloco_chaos.harness.trainer.model.transformer import Transformer

WIDTH = 6


def weights(experts, seed=0):
    random = np.random.default_rng(seed)
    shapes = {"router": (experts, WIDTH)} | {
        f"expert{expert}.{name}": shape for expert in range(experts)
        for name, shape in (("up", (2 * WIDTH, WIDTH)), ("down", (WIDTH, 2 * WIDTH)))}
    return {name: random.standard_normal(shape) for name, shape in shapes.items()}


def as_torch(arrays):
    return {name: torch.from_numpy(array) for name, array in arrays.items()}


def by_hand(token, given, experts, top_k):
    """(output, chances, chosen) of one token."""
    logits = given["router"] @ token
    chances = np.exp(logits - logits.max())
    chances /= chances.sum()
    chosen = np.argsort(-chances)[:top_k]
    gates = chances[chosen] / (chances[chosen].sum() if top_k > 1 else 1)
    outputs = [given[f"expert{e}.down"] @ np.maximum(given[f"expert{e}.up"] @ token, 0) ** 2 for e in chosen]
    return sum(gate * output for gate, output in zip(gates, outputs, strict=True)), chances, chosen


@pytest.mark.parametrize("top_k", [1, 2, 3])
@pytest.mark.parametrize("seed", range(5))
def test_every_token_is_what_its_experts_make_of_it(top_k, seed):
    given, tokens = weights(4, seed), np.random.default_rng(seed + 100).standard_normal((5, 7, WIDTH))
    made, balance = mixture(torch.from_numpy(tokens), as_torch(given).__getitem__, 4, top_k)
    flat = [by_hand(token, given, 4, top_k) for token in tokens.reshape(-1, WIDTH)]
    assert np.allclose(made.numpy().reshape(-1, WIDTH), [output for output, _, _ in flat])
    load = np.bincount(np.concatenate([chosen for _, _, chosen in flat]), minlength=4) / (35 * top_k)
    assert balance.item() == pytest.approx(4 * float(load @ np.mean([chances for _, chances, _ in flat], axis=0)))


@pytest.mark.parametrize("top_k", [1, 2])
def test_a_single_expert_or_equal_ones_are_a_dense_layer(top_k):
    given = as_torch(weights(top_k))
    for expert in range(top_k):
        given |= {f"expert{expert}.{name}": given[f"expert0.{name}"] for name in ("up", "down")}
    tokens = torch.randn(9, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    made, _ = mixture(tokens, given.__getitem__, top_k, top_k)
    assert torch.allclose(made, feed_forward(tokens, given["expert0.up"], given["expert0.down"]))


def test_balancing_costs_least_where_all_are_used_alike_and_most_where_one_does_everything():
    given = as_torch(weights(4)) | {"router": torch.zeros(4, WIDTH, dtype=torch.float64)}
    for one in range(4):  # the first of every token's numbers says where it goes
        given["router"][one, one] = 50.0
    alike = torch.eye(WIDTH, dtype=torch.float64)[:4].repeat(3, 1)
    assert mixture(alike, given.__getitem__, 4, 1)[1].item() == pytest.approx(1)
    assert mixture(alike[:1].repeat(8, 1), given.__getitem__, 4, 1)[1].item() == pytest.approx(4)


@pytest.mark.parametrize("top_k", [1, 2])
def test_gradients_are_those_of_output_and_balance(top_k):
    given = {name: tensor.requires_grad_() for name, tensor in as_torch(weights(3)).items()}
    tokens = torch.randn(4, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(1), requires_grad=True)

    def of(*tensors):
        return mixture(tensors[0], dict(zip(given, tensors[1:], strict=True)).__getitem__, 3, top_k)
    assert torch.autograd.gradcheck(of, (tokens, *given.values()))


@pytest.mark.parametrize("top_k", [1, 2])
def test_a_model_with_experts_learns_and_uses_all_of_them(tmp_path, top_k):
    torch.set_num_threads(1)
    spec = ModelSpec(width=16, blocks=1, heads=2, context=16, experts=4, top_k=top_k)
    corpus = Corpus(materialize("markov", tmp_path, needed_bytes(16))[0], 16, 1, 8, 0)
    model = Transformer(spec, spec.initial(0), corpus, 0)
    before = model.read(tuple(spec.shapes()))
    losses = [model.train(position, 8e-3) for position in range(80)]
    assert np.mean(losses[-10:]) < np.mean(losses[:10]) - 1
    after = model.read(tuple(spec.shapes()))
    assert all((before[name] != after[name]).any() for name in before if "expert" in name)
