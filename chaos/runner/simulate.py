"""Perform a plan under virtual time in memory, and judge it: what explorations and property tests call."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from diloco_chaos.chaos.checks import Judgement, judge
from diloco_chaos.chaos.evidence.baseline import LossPoint, Reference
from diloco_chaos.chaos.evidence.history import History
from diloco_chaos.chaos.evidence.run_folder import cache_folder
from diloco_chaos.chaos.runner.baselines import needed, synchronous
from diloco_chaos.chaos.runner.experiment import Experiment, Observer, RunOutcome
from diloco_chaos.chaos.runner.resume_point import ResumePoint
from diloco_chaos.chaos.runner.virtual_runtime import VirtualStage
from diloco_chaos.chaos.scenario.plan import Plan
from diloco_chaos.harness.base.gc_paused import gc_paused
from diloco_chaos.harness.base.tensors import Tensors
from diloco_chaos.harness.record.storage.disk import Content
from diloco_chaos.harness.record.tape.events import Event, Merge
from diloco_chaos.harness.record.tape.reading import Tape
from diloco_chaos.harness.simulation.parameters import Parameters
from diloco_chaos.harness.trainers.api.trainer import Kind, Workload
from diloco_chaos.harness.trainers.node.evaluate import point
from diloco_chaos.harness.trainers.storage.workings import InMemory

USUAL = Parameters()
_DEADLINE_S = 3600.0
"""Of a synchronous reference: not the plan's, so that plans that differ in nothing that matters to it share it."""
_DATA: dict[tuple[str, ...], Path | None] = {}
"""A trainer's name and what decides its data -> its file: a thousand runs look for it once."""


@dataclass(frozen=True)
class SimulatedRun:
    """A simulated run, and what it proves."""

    plan: Plan
    history: History
    outcome: RunOutcome

    @cached_property
    def judgement(self) -> Judgement:
        """The verdicts: judging costs half as much as the run, and is done when they are asked for."""
        return judge(self.history)

    @property
    def failed(self) -> list[str]:
        """Names of the checks that failed."""
        return [verdict.name for verdict in self.judgement.checks if verdict.verdict == "failed"]


class NullObserver(Observer):
    """Watches, and says nothing."""

    def on_event(self, event: Event) -> None:
        """Do nothing."""

    def on_tick(self, now: float) -> None:
        """Do nothing."""


def simulate(plan: Plan, parameters: Parameters = USUAL) -> SimulatedRun:
    """Perform a plan, to be judged. The same plan and parameters give the same events in any process.

    Raises:
        TrainerError: what is trained on can't be used.
    """
    references: dict[str, Reference] = {
        kind: _reference(kind, plan.without_faults(), parameters)[0] for kind in needed(plan)}
    workings = InMemory() if plan.trainer.needs_workings() else None
    done = performed(plan, parameters, workings=workings)
    history = History(plan, done.stage.tape(), done.curve(), references, workings, data_file(plan))
    return SimulatedRun(plan, history, done.outcome)


def record(plan: Plan, parameters: Parameters = USUAL) -> tuple[Tape, RunOutcome]:
    """Perform a plan, and judge nothing.

    Raises:
        TrainerError: as `simulate`.
    """
    done = performed(plan, parameters)
    return done.stage.tape(), done.outcome


@dataclass(frozen=True)
class Performed:
    """The results that a run leaves in memory."""

    stage: VirtualStage
    outcome: RunOutcome
    snapshots: list[tuple[Tensors, dict[str, Any]]]
    workload: Workload

    def curve(self) -> list[LossPoint]:
        """Held-out loss of every snapshot."""
        if not self.snapshots:
            return []
        loss = self.workload.evaluator()
        return [LossPoint(**point(loss, *snapshot)) for snapshot in self.snapshots]

    def final(self) -> LossPoint:
        """The curve's last point, and nothing else evaluated for it."""
        return LossPoint(**point(self.workload.evaluator(), *self.snapshots[-1]))


def performed(plan: Plan, parameters: Parameters = USUAL, initial: Tensors | None = None,
              origin: ResumePoint | None = None, parts: Mapping[str, Content] | None = None,
              workings: InMemory | None = None) -> Performed:
    """Perform a plan, from these values or from its own; with `origin`, go on from a checkpoint of these parts;
    `workings` records what nodes compute with.

    Raises:
        TrainerError: as `simulate`.
    """
    initial = initial_values(plan, parameters) if initial is None else initial
    snapshots: list[tuple[Tensors, dict[str, Any]]] = []
    workload = plan.trainer.workload(data_file(plan), initial)
    stage = VirtualStage(plan, parameters, workload, lambda tensors, meta: snapshots.append((tensors, meta)),
                         origin=origin, parts=parts, keep=workings.keep if workings else None)
    with gc_paused():  # a run makes hundreds of thousands of objects and next to no cycles
        return Performed(stage, Experiment(plan, stage, NullObserver(), origin).perform(), snapshots, workload)


def initial_values(plan: Plan, parameters: Parameters = USUAL) -> Tensors:
    """Return what every run of this plan begins from: fresh values, or the end of the shared warm start."""
    if not plan.cluster.begun_tokens:
        return plan.trainer.initial()
    return _reference("synchronous", plan.without_faults(), parameters)[1]


@lru_cache(maxsize=64)
def _by_plan(kind: Kind, text: str, parameters: Parameters) -> tuple[Reference, Tensors]:
    done = performed(Plan.model_validate_json(text), parameters)
    assert done.outcome.kind == "finished", f"a {kind} reference did not finish: {done.outcome.message}"
    tape = done.stage.tape()
    gaps = sorted(later.t - earlier.t for earlier, later in pairwise(tape.of(Merge)))
    return Reference(kind=kind, key="simulated", curve=tuple(done.curve()), wall=tape.end,
                     merge_gap_p99=gaps[int(0.99 * (len(gaps) - 1))] if gaps else None), done.snapshots[0][0]


def _reference(kind: Kind, bare: Plan, parameters: Parameters) -> tuple[Reference, Tensors]:
    same = bare.model_copy(update={"scenario": "reference", "description": "", "deadline": math.ceil(bare.deadline)})
    if kind == "synchronous":
        same = synchronous(same).model_copy(update={"deadline": _DEADLINE_S})
    return _by_plan(kind, same.model_dump_json(by_alias=True), parameters)


def data_file(plan: Plan) -> Path | None:
    """Return the file that is trained on; None where there is none."""
    known = plan.trainer.name, *plan.trainer.reads()
    if known not in _DATA:
        _DATA[known] = plan.trainer.prepare(cache_folder() / "corpora").file
    return _DATA[known]
