"""Whole training runs in one process, without sockets and without pace: what sweeps and loss figures are made from."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np
import torch

from chaos.folder import cache_folder
from harness.trainer.config import TrainerConfig
from harness.trainer.data import Corpus, materialize, needed_bytes
from harness.trainer.inmemory import InMemoryCluster
from harness.trainer.schedule import learning_rate
from harness.trainer.tensors import Tensors
from harness.trainer.transformer import Transformer


@lru_cache(maxsize=4)
def _corpus_file(name: str, context: int) -> Path:
    return materialize(name, cache_folder() / "corpora", needed_bytes(context))[0]


def corpus(config: TrainerConfig) -> Corpus:
    """The corpus of this configuration."""
    path = _corpus_file(config.corpus, config.spec.context)
    return Corpus(path, config.spec.context, config.learners, config.batch, config.seed)


def held_out_loss(config: TrainerConfig, values: Tensors) -> float:
    """Held-out loss of these parameters, nats per byte."""
    return Transformer(config.spec, values, corpus(config), 0).held_out_loss()


def synchronous(config: TrainerConfig) -> tuple[float, Tensors]:
    """The synchronous run: its final held-out loss, and its parameters at the end of the warm start."""
    torch.set_num_threads(1)
    config = config.model_copy(update={"mode": "data_parallel"})
    data, initial = corpus(config), config.spec.initial(config.seed)
    peers = [Transformer(config.spec, initial, data, index) for index in range(config.learners)]
    names, warm = tuple(config.spec.shapes()), initial
    for step in range(config.budget):
        if step == config.warm_start:
            warm = peers[0].read(names)
        gradients = [peer.gradient(step)[1]["gradient"] for peer in peers]
        mean = np.asarray(np.mean(gradients, axis=0, dtype=np.float32))
        rate = learning_rate(config, step * config.tokens_per_step * config.learners)
        for peer in peers:
            peer.apply({"gradient": mean}, rate)
    return peers[0].held_out_loss(), warm


def decoupled(config: TrainerConfig, initial: Tensors) -> float:
    """The decoupled run under virtual time, on a machine where a step takes a third of its pace: final loss."""
    torch.set_num_threads(1)
    data = corpus(config)
    cluster = InMemoryCluster(config, lambda index: Transformer(config.spec, initial, data, index), initial,
                              compute=config.step_time / 3)
    cluster.run()
    return held_out_loss(config, cluster.snapshots[-1][1])
