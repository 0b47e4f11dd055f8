"""What changes as training goes on, as a function of the global count of processed tokens: the inner learning rate, the
outer step, H, and when snapshots are taken."""

from __future__ import annotations

import math

from diloco_chaos.harness.trainer.algorithm.outer_optimizer import OuterStep
from diloco_chaos.harness.trainer.config.cluster_config import TrainerConfig


def learning_rate(config: TrainerConfig, tokens: int) -> float:
    """Linear warm-up, then cosine decay to `final_lr` of the peak at the end of the budget.

    `tokens` is the count over all learners that the syncer sends: a learner that was away, or that is slow, is at the
    same position as everyone else, and every run ends fully decayed at the same number of processed tokens.
    """
    peak = config.synchronous_lr if config.averages_gradients else config.lr
    step = tokens / config.tokens_of_all
    if step < config.warmup:
        return peak * (step + 1) / (config.warmup + 1)
    done = min(1.0, (step - config.warmup) / max(1, config.budget - config.warmup))
    return peak * (config.final_lr + (1 - config.final_lr) * (1 + math.cos(math.pi * done)) / 2)


def outer_step(config: TrainerConfig, tokens: int) -> OuterStep:
    """Outer rate and momentum, which rises linearly from 0 over the first `momentum_ramp` steps after the warm start.

    The rate falls meanwhile, so that rate / (1 - momentum), which is how far an outer gradient moves the model in the
    long run, is the same all the time.
    """
    share = _share(config, tokens, config.momentum_ramp)
    if share == 1:
        return OuterStep(config.outer_lr, config.outer_momentum)
    momentum = share * config.outer_momentum
    return OuterStep(config.outer_lr * (1 - momentum) / (1 - config.outer_momentum), momentum)


def steps_between_merges(config: TrainerConfig, tokens: int) -> float:
    """H: grows linearly from `sync_from` to `sync_every` over the first `sync_growth` steps after the warm start."""
    share = _share(config, tokens, config.sync_growth)
    return config.sync_from + share * (config.sync_every - config.sync_from) if share < 1 else config.sync_every


def _share(config: TrainerConfig, tokens: int, steps: int) -> float:
    """Return how much of so many steps of all learners is done, from 0 to 1, counted from the warm start's end; 1 where
    there are none to do."""
    over = steps * config.tokens_of_all
    return min(1.0, max(0, tokens - config.warm_tokens) / over) if over else 1.0


def snapshot_marks(config: TrainerConfig) -> list[tuple[int, float]]:
    """(number, processed tokens) at which the model is written down, from the warm start's end to the budget's."""
    span = config.budget_tokens - config.warm_tokens
    return [(number, config.warm_tokens + span * number / config.snapshots) for number in range(config.snapshots + 1)]
