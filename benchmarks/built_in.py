"""What is measured is the built-in trainer: its settings, from a plan."""

from __future__ import annotations

from diloco_chaos.chaos.scenario.plan import Plan
from diloco_chaos.harness.trainer.config.cluster_config import TrainerConfig


def config_of(plan: Plan) -> TrainerConfig:
    """The plan's settings."""
    assert isinstance(plan.cluster, TrainerConfig), "a plan of the built-in trainer"
    return plan.cluster
