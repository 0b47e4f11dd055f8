"""Whole trainings under virtual time: what the sweep is made from."""

from __future__ import annotations

from chaos import references
from chaos.plan import Plan, freeze
from chaos.scenario import load
from chaos.simulate import performed
from chaos.strategies import scenario
from harness.trainer.config import TrainerConfig
from harness.trainer.tensors import Tensors


def synchronous(config: TrainerConfig) -> tuple[float, Tensors]:
    """The synchronous run: its final held-out loss, and its parameters at the end of the warm start."""
    done = performed(references.synchronous(_plan(config)))
    return done.curve()[-1].loss, done.snapshots[0][0]


def decoupled(config: TrainerConfig, initial: Tensors, under: str = "") -> float:
    """The decoupled run from these parameters, with the faults of this scenario: its final held-out loss."""
    return performed(_plan(config, under), initial=initial).curve()[-1].loss


def _plan(config: TrainerConfig, under: str = "") -> Plan:
    faults = load(under)[0].faults if under else ()
    return freeze(scenario(config).model_copy(update={"deadline": 3600.0, "faults": faults}), config.seed)
