"""Which model a learner trains, and on what: a transformer on a corpus, or a problem whose answer is known."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from harness.trainer.config import TrainerConfig
from harness.trainer.model import ModelSpec
from harness.trainer.quadratic import Quadratic, QuadraticSpec
from harness.trainer.replica import Replica
from harness.trainer.tensors import Tensors

MakeReplica = Callable[[int], Replica]
"""make(index): a new replica for learner `index`, counted from 0."""


def replicas(config: TrainerConfig, corpus_file: Path, initial: Tensors, threads: int = 1) -> MakeReplica:
    """How replicas are made; imports torch where the model needs it, and lets it use so many threads. `initial`: every
    tensor's first value."""
    if isinstance(config.spec, QuadraticSpec):
        spec = config.spec
        return lambda index: Quadratic(spec, initial, config.seed, index)
    import torch

    from harness.trainer.data import Corpus
    from harness.trainer.transformer import Transformer
    assert isinstance(config.spec, ModelSpec), "there are two kinds of models"
    torch.set_num_threads(threads)
    model = config.spec
    corpus = Corpus(corpus_file, model.context, config.learners, config.batch, config.seed)
    return lambda index: Transformer(model, initial, corpus, index)
