"""Whole trainings without faults under virtual time: what the sweep is made from."""

from __future__ import annotations

from chaos import references
from chaos.plan import Plan, freeze
from chaos.simulate import performed
from chaos.strategies import scenario
from harness.trainer.config import TrainerConfig
from harness.trainer.tensors import Tensors


def _plan(config: TrainerConfig) -> Plan:
    return freeze(scenario(config).model_copy(update={"deadline": 3600.0}), config.seed)


def synchronous(config: TrainerConfig) -> tuple[float, Tensors]:
    """The synchronous run: its final held-out loss, and its parameters at the end of the warm start."""
    done = performed(references.synchronous(_plan(config)))
    return done.curve()[-1].loss, done.snapshots[0][0]


def decoupled(config: TrainerConfig, initial: Tensors) -> float:
    """The decoupled run from these parameters: its final held-out loss."""
    return performed(_plan(config), initial=initial).curve()[-1].loss
