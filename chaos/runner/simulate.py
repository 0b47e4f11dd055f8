"""Perform a plan under virtual time in memory, and judge it: what explorations and property tests call."""

from __future__ import annotations

import gc
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from chaos.checks import Judgement, judge
from chaos.evidence.baseline import Kind, Point, Reference
from chaos.evidence.history import History
from chaos.evidence.run_folder import cache_folder
from chaos.runner.baselines import needed, synchronous
from chaos.runner.experiment import Experiment, Observer, Outcome
from chaos.runner.resume_point import Origin
from chaos.runner.virtual_runtime import VirtualStage
from chaos.scenario.plan import Plan
from harness.simulation.parameters import Parameters
from harness.tape import Event, Tape
from harness.trainer.algorithm.tensors import Tensors
from harness.trainer.config.cluster_config import TrainerConfig
from harness.trainer.runtime.evaluate import point
from harness.trainer.runtime.replica_factory import MakeReplica, corpus_for, replicas
from harness.trainer.storage.disk import Content

USUAL = Parameters()
_DEADLINE_S = 3600.0
"""Of a synchronous reference: not the plan's, so that plans that differ in nothing that matters to it share it."""
_CORPORA: dict[tuple[str, str], Path | None] = {}
"""(model, corpus) -> its file: a thousand runs look for it once."""


@dataclass(frozen=True)
class Simulated:
    """A simulated run, and what it proves."""

    plan: Plan
    history: History
    judgement: Judgement
    outcome: Outcome

    @property
    def failed(self) -> list[str]:
        """Names of the checks that failed."""
        return [verdict.name for verdict in self.judgement.checks if verdict.verdict == "failed"]


class NullObserver(Observer):
    """Watches, and says nothing."""

    def on_event(self, event: Event) -> None:
        """Nothing."""

    def on_tick(self, now: float) -> None:
        """Nothing."""


def simulate(plan: Plan, parameters: Parameters = USUAL) -> Simulated:
    """Perform a plan and judge it. The same plan and parameters give the same events in any process.

    Raises:
        CorpusError: the model is trained on a corpus, and that can't be used.
    """
    references: dict[str, Reference] = {
        kind: _reference(kind, plan.without_faults(), parameters)[0] for kind in needed(plan)}
    done = performed(plan, parameters)
    history = History(plan, done.stage.tape(), done.curve(), references)
    return Simulated(plan, history, judge(history), done.outcome)


def record(plan: Plan, parameters: Parameters = USUAL) -> tuple[Tape, Outcome]:
    """Perform a plan, and judge nothing.

    Raises:
        CorpusError: as `simulate`.
    """
    done = performed(plan, parameters)
    return done.stage.tape(), done.outcome


@dataclass(frozen=True)
class Performed:
    """What a run leaves in memory."""

    stage: VirtualStage
    outcome: Outcome
    snapshots: list[tuple[Tensors, dict[str, Any]]]
    replicas: MakeReplica

    def curve(self) -> list[Point]:
        """Held-out loss of every snapshot."""
        model = self.replicas(0)
        return [Point(**point(model, *snapshot)) for snapshot in self.snapshots]

    def final(self) -> Point:
        """The curve's last point, and nothing else evaluated for it."""
        return Point(**point(self.replicas(0), *self.snapshots[-1]))


def performed(plan: Plan, parameters: Parameters = USUAL, initial: Tensors | None = None,
              origin: Origin | None = None, parts: Mapping[str, Content] | None = None) -> Performed:
    """Perform a plan, from these values or from its own; with `origin`, go on from a checkpoint of these parts.

    Raises:
        CorpusError: as `simulate`.
    """
    initial = initial_values(plan, parameters) if initial is None else initial
    snapshots: list[tuple[Tensors, dict[str, Any]]] = []
    make = replicas(plan.cluster, corpus_file(plan.cluster), initial)
    stage = VirtualStage(plan, parameters, initial, make, lambda tensors, meta: snapshots.append((tensors, meta)),
                         origin=origin, parts=parts)
    with _uncollected():
        return Performed(stage, Experiment(plan, stage, NullObserver(), origin).perform(), snapshots, make)


@contextmanager
def _uncollected() -> Iterator[None]:
    """No search for cyclic garbage meanwhile: a run makes hundreds of thousands of objects and next to no cycles."""
    on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if on:
            gc.enable()


def initial_values(plan: Plan, parameters: Parameters = USUAL) -> Tensors:
    """What every run of this plan begins from: fresh values, or the end of the shared warm start."""
    if not plan.cluster.warm_start or plan.cluster.mode == "synchronous":
        return plan.cluster.spec.initial(plan.cluster.seed)
    return _reference("synchronous", plan.without_faults(), parameters)[1]


@lru_cache(maxsize=64)
def _by_plan(kind: Kind, text: str, parameters: Parameters) -> tuple[Reference, Tensors]:
    done = performed(Plan.model_validate_json(text), parameters)
    assert done.outcome.kind == "finished", f"a {kind} reference did not finish: {done.outcome.message}"
    tape = done.stage.tape()
    gaps = sorted(later.t - earlier.t for earlier, later in pairwise(tape.of("merge")))
    return Reference(kind=kind, key="simulated", curve=tuple(done.curve()), wall=tape.events[-1].t,
                     merge_gap_p99=gaps[int(0.99 * (len(gaps) - 1))] if gaps else None), done.snapshots[0][0]


def _reference(kind: Kind, bare: Plan, parameters: Parameters) -> tuple[Reference, Tensors]:
    same = bare.model_copy(update={"scenario": "reference", "description": "", "deadline": math.ceil(bare.deadline)})
    if kind == "synchronous":
        same = synchronous(same).model_copy(update={"deadline": _DEADLINE_S})
    return _by_plan(kind, same.model_dump_json(by_alias=True), parameters)


def corpus_file(config: TrainerConfig) -> Path | None:
    """Where the corpus lies; None for a model that needs none."""
    known = config.model, config.corpus
    if known not in _CORPORA:
        _CORPORA[known] = corpus_for(config, cache_folder() / "corpora")[0]
    return _CORPORA[known]
