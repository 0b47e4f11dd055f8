"""The reference's AdamW against `torch.optim.AdamW`, and its batches against the corpus."""

from hashlib import blake2b

import numpy as np
import pytest
import torch

from diloco_chaos.harness.trainer.model.corpus import Corpus, materialize, needed_bytes
from diloco_chaos.harness.trainer.reference import adamw
from diloco_chaos.harness.trainer.reference.batches import Batches

SIZE = 1000


def stepped(count, scale, rate=6e-3, dtype=torch.float32):
    """A step of torch's own optimizer after others: (before, gradient, norm, after)."""
    chance = torch.Generator().manual_seed(count)
    weights = torch.randn(SIZE, generator=chance).to(dtype).requires_grad_(True)
    optimizer = torch.optim.AdamW([weights], lr=rate, betas=(0.9, 0.99), eps=1e-8, weight_decay=0.0)
    for _ in range(count + 1):
        before, told = weights.detach().clone(), dict(optimizer.state[weights])
        first, second = (told[name].clone() if told else torch.zeros(SIZE) for name in ("exp_avg", "exp_avg_sq"))
        gradient = torch.randn(SIZE, generator=chance) * scale
        norm = float(gradient.norm())
        weights.grad = (gradient * min(1.0, 1.0 / norm)).to(dtype)
        optimizer.step()
    state = optimizer.state[weights]
    after = weights.detach(), state["exp_avg"], state["exp_avg_sq"]
    numbers = [tensor.to(torch.float64).numpy() for tensor in (before, first, second, gradient, *after)]
    return adamw.State(*numbers[:3]), numbers[3], norm, adamw.State(*numbers[4:])


def differ(made, recorded):
    return [int((~(np.abs(got - expected) <= off)).sum()) for expected, off, got in zip(*made, recorded, strict=True)]


@pytest.mark.parametrize("count", [0, 1, 9, 300])
@pytest.mark.parametrize("scale", [1e-6, 1e-2, 10.0])
def test_a_step_of_torchs_optimizer_is_within_what_float32_may_be_off(count, scale):
    before, gradient, norm, after = stepped(count, scale)
    assert differ(adamw.step(before, gradient, norm, 6e-3, count), after) == [0, 0, 0]


@pytest.mark.parametrize(("rate", "count"), [(6e-3 * 1.0001, 9), (6e-3, 8), (6e-3, 10), (6e-3, 0)])
def test_another_rate_or_count_is_not(rate, count):
    before, gradient, norm, after = stepped(9, 1e-2)
    assert differ(adamw.step(before, gradient, norm, rate, count), after)[0] > SIZE // 2


def test_nor_is_a_step_in_bfloat16():
    before, gradient, norm, after = stepped(9, 1e-2, dtype=torch.bfloat16)
    assert differ(adamw.step(before, gradient, norm, 6e-3, 9), after)[0] > SIZE // 2


def test_second_moments_never_fall_faster_than_they_decay():
    before, _, _, _ = stepped(9, 1e-2)
    second = before.second.astype(np.float32)
    for steps in range(1, 200):
        second = second * np.float32(0.99)
        assert (second >= adamw.least_second(before.second, steps)).all()
    assert not (second * np.float32(0.999) >= adamw.least_second(before.second, 199)).any()


def test_batches_are_those_of_the_corpus(tmp_path):
    file = materialize("markov", tmp_path, needed_bytes(16))[0]
    corpus, batches = Corpus(file, 16, 3, (2, 3, 1), 5), Batches(file, (2, 3, 1), 16, 5)
    for learner in range(3):
        for position in (0, 7, 50_000):
            data = np.stack(corpus.batch(learner, position)).astype(np.uint8).tobytes()
            assert batches.digest(learner, position) == blake2b(data, digest_size=16).hexdigest()
    assert batches.digest(0, 1) != batches.digest(0, 2) != batches.digest(1, 1)
