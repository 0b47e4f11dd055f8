"""Whole trainings: what the sweep and the losses are made from."""

from __future__ import annotations

from typing import TypeVar

from chaos import references
from chaos.plan import Plan, freeze
from chaos.run import Result
from chaos.scenario import load
from chaos.simulate import Performed, Simulated, performed
from chaos.strategies import scenario
from harness.trainer.config import TrainerConfig
from harness.trainer.tensors import Tensors

Ended = TypeVar("Ended", Performed, Simulated, Result)


def synchronous(config: TrainerConfig) -> tuple[float, Tensors]:
    """The synchronous run: its final held-out loss, and its parameters at the end of the warm start."""
    done = ended(performed(references.synchronous(_plan(config))))
    return done.curve()[-1].loss, done.snapshots[0][0]


def decoupled(config: TrainerConfig, initial: Tensors, under: str = "") -> float:
    """The decoupled run from these parameters, with the faults of this scenario: its final held-out loss."""
    return ended(performed(_plan(config, under), initial=initial)).curve()[-1].loss


def ended(done: Ended) -> Ended:
    """The same, if it came to its end: the loss of a run that was cut off says nothing.

    Raises:
        RuntimeError: it did not.
    """
    if done.outcome.kind != "finished":
        raise RuntimeError(f"a run ended before its training did: {done.outcome.kind}: {done.outcome.message}")
    return done


def _plan(config: TrainerConfig, under: str = "") -> Plan:
    faults = load(under)[0].faults if under else ()
    return freeze(scenario(config).model_copy(update={"deadline": 3600.0, "faults": faults}), config.seed)
