"""Runs a plan from beginning to end: references, the experiment, the judgement."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Protocol

from pydantic import ValidationError

from diloco_chaos.chaos.checks import Judgement, judge
from diloco_chaos.chaos.evidence.baseline import LossPoint, Reference
from diloco_chaos.chaos.evidence.history import History
from diloco_chaos.chaos.evidence.run_folder import FolderError, RunFolder, cache_folder, environment
from diloco_chaos.chaos.evidence.traffic import Crossed, crossed
from diloco_chaos.chaos.runner import own_commands
from diloco_chaos.chaos.runner.backends import Backend, named
from diloco_chaos.chaos.runner.baselines import (
    NoReferenceError,
    References,
    drop_snapshots,
    loss_curve,
    needed,
    reported_curve,
)
from diloco_chaos.chaos.runner.cleanup import clean
from diloco_chaos.chaos.runner.director import Director
from diloco_chaos.chaos.runner.experiment import Experiment, Observer, RunOutcome
from diloco_chaos.chaos.runner.reference_beside import ReferenceBeside
from diloco_chaos.chaos.scenario import plan as plans
from diloco_chaos.chaos.scenario.plan import Plan
from diloco_chaos.harness.base.gc_paused import gc_paused
from diloco_chaos.harness.base.processes import identity
from diloco_chaos.harness.places.registry import DEFAULT
from diloco_chaos.harness.record.storage.disk import file_digest
from diloco_chaos.harness.record.tape.events import SCHEMA, End
from diloco_chaos.harness.record.undo_log import UndoLog
from diloco_chaos.harness.trainers.node.settings import SETTINGS, NodeSettings
from diloco_chaos.harness.trainers.storage.global_checkpoint import CHECKPOINTS
from diloco_chaos.harness.trainers.storage.workings import WORKINGS, Amount, InFolder

REPORT = "report.json"
INCONCLUSIVE, INTERRUPTED = 3, 130
"""Exit codes of a run that proves nothing, and of one that Ctrl-C has ended."""


class Audience(Protocol):
    """A display that shows how a run goes on: a terminal, a log, or nothing."""

    def watch(self, plan: Plan, what: str) -> Observer:
        """Return an observer of the next run, `what` being `synchronous`, `fault-free` or `run`."""
        ...

    def say(self, text: str) -> None:
        """One line about what comes next."""
        ...

    def far(self, done: int, of: int) -> None:
        """Show how far the run is with what was said last."""
        ...


@dataclass(frozen=True)
class Result:
    """A run that ended, and what it proves."""

    folder: RunFolder
    history: History
    judgement: Judgement
    outcome: RunOutcome

    @cached_property
    def traffic(self) -> Crossed:
        """Return what crossed the coordinator's sockets."""
        return crossed(self.history)

    @property
    def took(self) -> float:
        """Seconds from its start to the last that was recorded."""
        return self.history.tape.end


def run_plan(plan: Plan, runs: Path, audience: Audience, backend: Backend | None = None,
             evidence: Amount = "sampled", director: Director | None = None) -> Result:
    """Perform a plan and judge it.

    Args:
        plan: the frozen plan; its corpus is found now.
        runs: where the run's folder is made.
        audience: hears how the run goes.
        backend: where to run; processes on this machine if not given, which is also where references are trained
            unless time is virtual.
        evidence: how much of what nodes compute with is kept, where that is needed to compute it again.
        director: who adds faults while it goes on; the plan in the run's folder is the one with them.

    Raises:
        TrainerError, FolderError, ScenarioError: the input is wrong, or the place can't do what the plan asks for.
        NoReferenceError: a reference run did not finish.
        UndoLogError: the undo log can't be written.
        KeyboardInterrupt: Ctrl-C before the run itself had begun.
    """
    backend = backend or named(DEFAULT)
    backend.refuse(plan)
    RunFolder.prepare(runs)
    for line in clean() if not backend.virtual else ():
        audience.say(f"left behind by an earlier run: {line}")
    with backend.cleanup_guard() as undo_log:
        own_commands.remember(plan)
        return _run(plan, runs, audience, backend, undo_log, evidence, director)


def run_again_if_inconclusive(perform: Callable[[], Result], retries: int, say: Callable[[str], None]) -> Result:
    """Perform a run, and again while it proves nothing, so many times at most. One that failed is never repeated.

    `say` gets a line before every repetition.
    """
    result = perform()
    for _ in range(retries):
        if exit_code(result) != INCONCLUSIVE:
            break
        say(f"{result.folder.path} was inconclusive, and runs again: {reason(result)}")
        result = perform()
    return result


def reason(result: Result) -> str:
    """Return why a run proves nothing."""
    unknown = [verdict.name for verdict in result.judgement.checks if verdict.verdict == "unknown"]
    return result.judgement.inconclusive or result.outcome.message or f"{', '.join(unknown) or 'no check'} can't tell"


def _run(plan: Plan, runs: Path, audience: Audience, backend: Backend, undo_log: UndoLog,
         evidence: Amount, director: Director | None) -> Result:
    if backend.virtual:
        audience.say("virtual time: seconds below are the simulation's, not yours")
    data = plan.trainer.prepare(cache_folder() / "corpora", undo_log)
    size = data.file.stat().st_size if data.file else 0
    if data.file:
        audience.say(f"corpus {data.name}: {size / 1e6:.1f} MB, digest {data.digest[:12]}")
    # What is kept is trained where it is cheapest; commands are wherever what they need is.
    at = backend if backend.virtual or not plan.trainer.baselines_are_kept else named(DEFAULT)
    references = References(cache_folder(), data.file, data.digest, at.stage, undo_log, at.virtual)
    beside = not at.virtual and plan.trainer.baselines_are_kept and (os.cpu_count() or 1) > 1
    by_kind = _references(plan, references, audience, beside)
    folder = RunFolder.create(runs, plan.scenario)
    plans.save(plan, folder.path / "plan.json")
    folder.write("manifest.json", {
        "run": folder.path.name, "scenario": plan.scenario, "seed": plan.seed, "plan": plan.digest,
        "created": datetime.now(UTC).isoformat(timespec="milliseconds"), "backend": backend.name, "tape_schema": SCHEMA,
        "harness": identity(os.getpid()),
        "corpus": {"name": data.name, "digest": data.digest, "bytes": size} if data.file else None,
        "initial": file_digest(warm) if (warm := references.warm_start(plan)) else None,
        "references": {kind: reference.key for kind, reference in by_kind.items()},
        "repeat": repeating(folder, backend), **environment()})
    for kind, reference in by_kind.items():
        folder.write(f"references/{kind}.json", reference.model_dump(mode="json"))
    settings = NodeSettings(trainer=plan.trainer.path, cluster=plan.cluster, data=data.file, initial=warm,
                            evidence=evidence if plan.trainer.needs_workings() else "off")
    stage = backend.stage(plan, folder, settings, undo_log)
    return concluded(Experiment(plan, stage, audience.watch(plan, "run"), director=director), folder, audience)


def repeating(folder: RunFolder, backend: Backend) -> str:
    """The command that performs a run's plan again."""
    return f"diloco-chaos run --plan {folder.path / 'plan.json'}{backend.option}"


def concluded(experiment: Experiment, folder: RunFolder, audience: Audience) -> Result:
    """Perform it, and judge what it left."""
    outcome = experiment.perform()
    if (manifest := folder.manifest()).get("plan") != experiment.plan.digest:  # faults were added on the way
        folder.write("manifest.json", manifest | {"plan": experiment.plan.digest})
    if outcome.kind == "finished" and any((folder.path / "snapshots").glob("*")):
        audience.say("measuring the held-out loss")
        try:
            loss_curve(folder, audience.far)
            drop_snapshots(folder)
        except NoReferenceError as error:
            audience.say(str(error))
        except KeyboardInterrupt:
            outcome = RunOutcome("interrupted", "stopped by Ctrl-C while the loss was measured")
    if outcome.kind == "finished":
        shutil.rmtree(folder.path / CHECKPOINTS, ignore_errors=True)  # no run goes on from one that is over
    result = judged(folder, outcome)
    folder.write(REPORT, document(result))
    return result


def _references(plan: Plan, references: References, audience: Audience, beside: bool) -> Mapping[str, Reference]:
    """Return the references that the plan needs, of which the cache has some. `beside`: two of them may be trained at
    the same time."""
    by_kind: dict[str, Reference] = {}
    kinds = needed(plan)
    if beside and len(kinds) > 1 and all(references.cached(kind, plan) == "" for kind in kinds):
        audience.say("synchronous and fault-free reference: training them once, side by side")
        with ReferenceBeside(plan) as synchronous:
            synchronous.await_start(lambda: references.has_begun(plan))
            references.train("fault-free", plan, audience.watch)
            synchronous.finish()
    for kind in kinds:
        reference = references.cached(kind, plan)
        if isinstance(reference, Reference):
            audience.say(f"{kind} reference: cached")
        else:
            audience.say(f"{kind} reference: what the cache has is damaged ({reference}): training it again"
                         if reference else f"{kind} reference: training it once")
            reference = references.train(kind, plan, audience.watch)
        by_kind[kind] = reference
    return by_kind


def recorded(folder: RunFolder) -> History:
    """Return the history that a run's folder holds.

    Raises:
        ScenarioError: its plan can't be read, or was altered.
        FolderError: a curve can't be understood.
    """
    plan, tape = folder.plan(), folder.tape()
    try:
        references = {kind: Reference.model_validate(stored) for kind in ("synchronous", "fault-free")
                      if (stored := folder.document(f"references/{kind}.json"))}
        curve = reported_curve(plan, tape) if plan.trainer.tells_losses else tuple(
            LossPoint.model_validate(point) for point in folder.document("curve.json").get("curve", []))
    except (ValidationError, TypeError) as error:
        raise FolderError(f"{folder.path}: a curve can't be understood: {str(error).splitlines()[0]}") from error
    kept = folder.document(SETTINGS).get("evidence", "off") != "off"
    return History(plan, tape, curve, references, InFolder(folder.path / WORKINGS) if kept else None,
                   folder.corpus())


def judged(folder: RunFolder, outcome: RunOutcome | None = None) -> Result:
    """Judge a run's folder; the same folder always gives the same verdicts. `outcome`: how it ended, where that is
    known.

    Raises:
        ScenarioError, FolderError: as `recorded`.
    """
    history = recorded(folder)
    with gc_paused():
        judgement = judge(history)
    if outcome is None:
        ends = history.tape.of(End, node="harness")
        outcome = (RunOutcome(ends[-1].outcome, ends[-1].message) if ends
                   else RunOutcome("broken", "the harness died before the run was over"))
    return Result(folder, history, judgement, outcome)


def document(result: Result) -> dict[str, object]:
    """The report for programs."""
    accounting, traffic = result.history.accounting, result.traffic
    final = result.history.final if result.history.curve else None
    return {"run": result.folder.path.name, "scenario": result.history.plan.scenario, "seed": result.history.plan.seed,
            "plan": result.history.plan.digest, "outcome": result.outcome.kind, "message": result.outcome.message,
            "exit_code": exit_code(result), "inconclusive": result.judgement.inconclusive,
            "gaps": result.judgement.gaps, "resumed": result.folder.manifest().get("resumed"),
            "out_of_reach": result.judgement.out_of_reach,
            "checks": [verdict.model_dump(mode="json") for verdict in result.judgement.checks],
            "bytes": {"received": dict(traffic.received), "sent": dict(traffic.sent)},
            "tokens": {"processed": accounting.processed, **dict(accounting.by_fate)},
            "loss": final.loss if final else None}


def exit_code(result: Result) -> int:
    """0 all passed, 1 a check failed, 3 inconclusive, 130 interrupted."""
    return INTERRUPTED if result.outcome.kind == "interrupted" else result.judgement.exit_code
