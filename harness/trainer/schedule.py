"""The inner learning rate as a function of the global count of processed tokens, and when snapshots are taken."""

from __future__ import annotations

import math

from harness.trainer.config import SYNCHRONOUS, TrainerConfig


def learning_rate(config: TrainerConfig, tokens: int) -> float:
    """Linear warm-up, then cosine decay to `final_lr` of the peak at the end of the budget.

    `tokens` is the count over all learners that the syncer sends: a learner that was away, or that is slow, is at the
    same position as everyone else, and every run ends fully decayed at the same number of processed tokens.
    """
    peak = config.synchronous_lr if config.mode in SYNCHRONOUS else config.lr
    step = tokens / (config.tokens_per_step * config.learners)
    if step < config.warmup:
        return peak * (step + 1) / (config.warmup + 1)
    done = min(1.0, (step - config.warmup) / max(1, config.budget - config.warmup))
    return peak * (config.final_lr + (1 - config.final_lr) * (1 + math.cos(math.pi * done)) / 2)


def snapshot_marks(config: TrainerConfig) -> list[tuple[int, float]]:
    """(number, processed tokens) at which the model is written down, from the warm start's end to the budget's."""
    span = config.budget_tokens - config.warm_tokens
    return [(number, config.warm_tokens + span * number / config.snapshots) for number in range(config.snapshots + 1)]
