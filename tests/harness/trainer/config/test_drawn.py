"""Clusters that explorations draw: all of them can be, and between them they have everything."""

import random

from diloco_chaos.chaos.exploration.generate import ByChance
from diloco_chaos.harness.trainer.config.cluster_config import MODES, TrainerConfig
from diloco_chaos.harness.trainer.config.drawn import varied

BASE = TrainerConfig(model="quadratic", learners=3, budget=250)


def drawn(seed):
    return varied(BASE, ByChance(random.Random(seed)).pick)


def test_the_training_is_the_same_and_the_cluster_another_one():
    clusters = [drawn(seed) for seed in range(200)]
    assert all((one.model, one.budget, one.warmup, one.lr) == (BASE.model, BASE.budget, BASE.warmup, BASE.lr)
               for one in clusters)
    assert {one.mode for one in clusters} == set(MODES)
    assert {one.learners for one in clusters} == {2, 3, 4, 5}
    assert {one.quorum - one.learners for one in clusters if one.mode == "decoupled"} >= {0, -1, -2}
    for key, least in (("fragments", 5), ("sync_every", 4), ("max_staleness", 3), ("anchor", 2), ("merge", 2),
                       ("recovery", 2), ("gradients", 4), ("broadcasts", 4), ("on_receipt", 2), ("overlap", 4),
                       ("error_feedback", 2), ("variance", 3), ("outer_momentum", 3), ("heartbeat_timeout", 2)):
        assert len({getattr(one, key) for one in clusters}) >= least, key
    assert any(one.speeds for one in clusters)
    assert any(len(set(one.batches)) > 1 for one in clusters)


def test_the_same_chance_gives_the_same_cluster():
    assert [drawn(seed) for seed in range(20)] == [drawn(seed) for seed in range(20)]


def test_more_learners_than_a_simulated_machine_holds_have_longer_steps():
    assert all(one.step_time >= 0.08 for seed in range(100) if (one := drawn(seed)).learners > 4)


def test_what_does_not_fit_together_is_left_as_it_is():
    assert varied(BASE, lambda options: 99 if isinstance(options[0], int) else options[0]) == BASE
