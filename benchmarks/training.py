"""Whole trainings: what the sweep and the losses are made from."""

from __future__ import annotations

from typing import Any, TypeVar

from chaos import references
from chaos.plan import Plan, freeze
from chaos.run import Result
from chaos.scenario import load
from chaos.simulate import Performed, Simulated, performed
from chaos.strategies import scenario
from harness.trainer.config import TrainerConfig

Ended = TypeVar("Ended", Performed, Simulated, Result)


def synchronous(plan: Plan) -> Performed:
    """The synchronous run that a plan is held against; its first snapshot is the end of the warm start."""
    return ended(performed(references.synchronous(plan)))


def ended(done: Ended) -> Ended:
    """The same, if it came to its end: the loss of a run that was cut off says nothing.

    Raises:
        RuntimeError: it did not.
    """
    if done.outcome.kind != "finished":
        raise RuntimeError(f"a run ended before its training did: {done.outcome.kind}: {done.outcome.message}")
    return done


def with_cluster(plan: Plan, **changes: Any) -> Plan:
    """The plan with other cluster settings, held against the synchronous run alone."""
    document = plan.model_dump(mode="json", by_alias=True)
    document["cluster"] |= changes
    document["checks"]["loss_parity"]["against_twin"] = None
    return Plan.model_validate(document)


def planned(config: TrainerConfig, under: str = "") -> Plan:
    """A training with these settings and the faults of this scenario, with all the time that it takes."""
    faults = load(under)[0].faults if under else ()
    return freeze(scenario(config).model_copy(update={"deadline": 3600.0, "faults": faults}), config.seed)
