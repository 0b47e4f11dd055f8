"""Whole training runs in one process, without sockets and without pace: what sweeps and loss figures are made from."""

from __future__ import annotations

import numpy as np

from chaos.simulate import corpus_file
from harness.trainer.config import TrainerConfig
from harness.trainer.inmemory import InMemoryCluster
from harness.trainer.replicas import MakeReplica, replicas
from harness.trainer.schedule import learning_rate
from harness.trainer.tensors import Tensors


def _replicas(config: TrainerConfig, initial: Tensors) -> MakeReplica:
    return replicas(config, corpus_file(config), initial)


def held_out_loss(config: TrainerConfig, values: Tensors) -> float:
    """Held-out loss of these parameters, nats per byte."""
    return _replicas(config, values)(0).held_out_loss()


def synchronous(config: TrainerConfig) -> tuple[float, Tensors]:
    """The synchronous run: its final held-out loss, and its parameters at the end of the warm start."""
    config = config.model_copy(update={"mode": "data_parallel"})
    initial = config.spec.initial(config.seed)
    peers = list(map(_replicas(config, initial), range(config.learners)))
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
    cluster = InMemoryCluster(config, _replicas(config, initial), initial, compute=config.step_time / 3)
    cluster.run()
    return held_out_loss(config, cluster.snapshots[-1][1])
