"""Whole trainings: what the sweep, the tuning and the losses are made from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar

from diloco_chaos.chaos.evidence.baseline import LossPoint
from diloco_chaos.chaos.exploration.strategies import scenario
from diloco_chaos.chaos.runner import baselines
from diloco_chaos.chaos.runner.run import Result
from diloco_chaos.chaos.runner.simulate import Performed, SimulatedRun, data_file, performed
from diloco_chaos.chaos.scenario.loading import load
from diloco_chaos.chaos.scenario.model import Scenario
from diloco_chaos.chaos.scenario.plan import Plan, freeze
from diloco_chaos.harness.base.tensors import Tensors
from diloco_chaos.harness.trainer.config.cluster_config import TrainerConfig
from diloco_chaos.harness.trainer.config.schedule import learning_rate, snapshot_marks
from diloco_chaos.harness.trainer.data_parallel.hub import averaged
from diloco_chaos.harness.trainer.model.corpus import HeldOut
from diloco_chaos.harness.trainer.model.replica import start
from diloco_chaos.harness.trainer.runtime.replica_factory import evaluator, replicas
from diloco_chaos.harness.trainers.node.evaluate import point

Ended = TypeVar("Ended", Performed, SimulatedRun, Result)


class Lockstep(NamedTuple):
    """A synchronous run, as far as it was taken."""

    state: Tensors
    """Weights, and AdamW's moments: what another run may begin from."""
    curve: list[LossPoint]


def synchronous(plan: Plan) -> Performed:
    """The synchronous run that a plan is held against; its first snapshot is the end of the warm start."""
    return ended(performed(baselines.synchronous(plan)))


def in_lockstep(config: TrainerConfig, steps: int, held_out: HeldOut = "reported") -> Lockstep:
    """The first steps of the synchronous run, bit for bit, without nodes and messages; its curve has no time.

    The synchronous run's learning rate is `synchronous_lr`, whatever the mode of this configuration.
    """
    mine = config.model_copy(update={"mode": "synchronous"})
    make = replicas(mine, data_file(planned(mine)), mine.spec.initial(mine.seed), held_out=held_out)
    group = [make(index) for index in range(mine.learners)]
    marks, curve, tokens = snapshot_marks(mine), [], 0
    for step in range(steps + 1):
        while marks and tokens >= marks[0][1]:
            curve.append(LossPoint(number=marks.pop(0)[0], processed=tokens, merged=tokens, t=0.0,
                                   loss=round(group[0].held_out_loss(), 5)))
        if step < steps:
            mean = averaged([replica.gradient(step)[1] for replica in group], mine.batches)
            for replica in group:
                replica.apply(mean, learning_rate(mine, tokens))
            tokens += mine.tokens_of_all
    return Lockstep(start(group[0].state()), curve)


def decoupled(config: TrainerConfig, held_out: HeldOut = "reported", faults: Sequence[dict[str, Any]] = (),
              shared: bool = False) -> list[LossPoint]:
    """The curve of a decoupled run under virtual time. Its data-parallel first steps, if it has any (`warm_start`), are
    its own, taken at its own learning rate, or `shared` with the synchronous run, at that one's.

    `faults`: as in a scenario.
    """
    mine = config if shared else config.model_copy(update={"synchronous_lr": config.lr})
    begun = in_lockstep(mine, mine.warm_start).state if mine.warm_start else mine.spec.initial(mine.seed)
    done = ended(performed(planned(mine, faults=faults), initial=begun))
    loss = evaluator(replicas(mine, data_file(planned(mine)), done.snapshots[-1][0], held_out=held_out)(0))
    return [LossPoint(**point(loss, *snapshot)) for snapshot in done.snapshots]


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
    document["checks"]["loss_parity"]["against_baseline"] = None
    return Plan.model_validate(document)


def planned(config: TrainerConfig, under: str = "", faults: Sequence[dict[str, Any]] = ()) -> Plan:
    """A training with these settings and these faults, or those of a scenario, with all the time that it takes."""
    document = scenario(config).model_dump(mode="json", by_alias=True)
    document |= {"deadline": "3600s", "faults": [*faults]}
    whole = Scenario.model_validate(document)
    return freeze(whole.model_copy(update={"faults": load(under)[0].faults}) if under else whole, config.seed)
