"""Cheap things to train: numbers that walk towards a target, no torch and no files."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest

from diloco_chaos.harness.base.tensors import all_finite
from diloco_chaos.harness.trainer.config.cluster_config import TrainerConfig
from inmemory import InMemoryCluster


class Walker:
    """A replica whose training is a step towards a target, the same for the same shard and position."""

    def __init__(self, values, learner):
        self.values = {name: array.copy() for name, array in values.items()}
        self.learner = learner

    def read(self, names):
        return {name: self.values[name].copy() for name in names}

    def write(self, tensors):
        for name, array in tensors.items():
            self.values[name] = array.copy()

    def state(self):
        return {"value/" + name: array.copy() for name, array in self.values.items()}

    def load(self, state):
        self.write({name.removeprefix("value/"): array for name, array in state.items()})

    def damage(self, part, change):
        if part == "weights":
            for array in self.values.values():
                change(array.reshape(-1))

    def train(self, position, lr):
        if not all_finite(self.values):
            return math.nan
        for (name, array), target in zip(self.values.items(), _targets(self.learner, position, len(self.values)),
                                         strict=True):
            self.values[name] = array + np.float32(lr) * (target - array)
        return 1.0

    def evidence(self):
        return None


@cache
def _targets(learner, position, count):
    """For every tensor one; drawn once for all tests."""
    return (np.random.default_rng((learner, position)).standard_normal(count) * 0.1 + 1).astype(np.float32)


@pytest.fixture
def make_cluster():
    """make_cluster(lose=..., **settings) -> an in-memory cluster of walkers."""
    def make(lose=lambda *_: False, delay=0.001, **settings):
        config = TrainerConfig.model_validate({
            "model": "micro", "fragments": 4, "budget": 60, "step_time": "60ms", "snapshots": 2, **settings})
        initial = config.spec.initial(0)
        return InMemoryCluster(config, lambda index: Walker(initial, index), initial, lose=lose, delay=delay)
    return make
