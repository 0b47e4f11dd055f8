"""The runs that a loss is held against, trained once and kept: the synchronous run, and the fault-free baseline."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import Any, TypeVar

from pydantic import ValidationError

from diloco_chaos.chaos.evidence.accounting.remade import ToldRound, told_rounds
from diloco_chaos.chaos.evidence.baseline import LossPoint, Reference
from diloco_chaos.chaos.evidence.run_folder import RunFolder, environment
from diloco_chaos.chaos.runner.experiment import Experiment, Observer
from diloco_chaos.chaos.runner.runtime import MakeStage
from diloco_chaos.chaos.scenario.plan import Plan, save
from diloco_chaos.harness.base.errors import UserError, first
from diloco_chaos.harness.record.storage.checkpoint import CheckpointError
from diloco_chaos.harness.record.tape.events import Finished, Merge, Step
from diloco_chaos.harness.record.tape.reading import Tape
from diloco_chaos.harness.record.undo_log import UndoLog
from diloco_chaos.harness.record.undos import Remove
from diloco_chaos.harness.trainers.api.trainer import Kind, ToldLoss, TrainerError
from diloco_chaos.harness.trainers.node.evaluate import evaluate
from diloco_chaos.harness.trainers.node.settings import NodeSettings

T = TypeVar("T")
_FILE, _WARM, _FIRST = "reference.json", "warm.safetensors", "000.safetensors"
_TOLD_LINES = 3
_DEADLINE_S = 600.0
"""A reference is trained once: a slow machine may take its time."""


class NoReferenceError(UserError):
    """A reference run did not finish; the message says why."""

    exit_code = 3


def needed(plan: Plan) -> list[Kind]:
    """Return the references that a plan's checks and its warm start need, in the order in which they must be had."""
    parity = plan.checks.loss_parity
    kinds: list[Kind] = []
    if plan.cluster.first_position or (parity and parity.against_synchronous is not None):
        kinds.append("synchronous")
    if ((parity and parity.against_baseline is not None) or plan.checks.same_as_uninterrupted
            or plan.checks.rounds_repeat.control):
        kinds.append("fault-free")
    return kinds


def synchronous(bare: Plan) -> Plan:
    """The synchronous run that a fault-free plan is held against: without pace, whatever else the plan says."""
    return bare.model_copy(update={"cluster": bare.trainer.synchronous()})


def fault_free(bare: Plan) -> Plan:
    """The run without faults that a plan is held against."""
    return bare.model_copy(update={"cluster": bare.trainer.baseline()})


def key(kind: Kind, plan: Plan, corpus_digest: str, virtual: str = "") -> str:
    """Digest of everything that a reference depends on."""
    versions = environment()
    content = {"kind": kind, "config": plan.trainer.decides(kind), "corpus": corpus_digest,
               "torch": versions["torch"], "numpy": versions["numpy"], "threads": 1, "sources": versions["trainer"]}
    content |= {"virtual": virtual} if virtual else {}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:24]


class References:
    """The cache of reference runs. Two harnesses that need the same one train it once: the second waits."""

    def __init__(self, cache: Path, corpus_file: Path | None, corpus_digest: str, stage: MakeStage, undo_log: UndoLog,
                 virtual: str = "") -> None:
        """`virtual`: digest of what virtual time is made of, empty for real time."""
        self._cache, self._corpus_file, self._corpus_digest = cache / "references", corpus_file, corpus_digest
        self._stage, self._undo_log, self._virtual = stage, undo_log, virtual

    def cached(self, kind: Kind, plan: Plan) -> Reference | str:
        """Return the reference that the cache has, also a cache that can't be written; else what is wrong with it,
        which is empty where nothing is there."""
        return _kept(self._folder(kind, plan))

    def warm_start(self, plan: Plan) -> Path | None:
        """The checkpoint that every run of this plan begins from; the synchronous reference must be there."""
        return self._folder("synchronous", plan) / _WARM if plan.cluster.first_position else None

    def early_warm_start(self, plan: Plan, to: Path) -> Path | None:
        """Return a copy, in this folder, of the checkpoint that every run of this plan begins from; None: there is none
        yet. The synchronous reference need not be whole: it may go on."""
        folder = self._folder("synchronous", plan)
        unfinished = f"{folder.name}.*.work"
        for place in (f"{unfinished}/snapshots/{_FIRST}", f"{unfinished}/kept/{_WARM}", f"{folder.name}/{_WARM}"):
            for path in self._cache.glob(place):  # in the order in which it moves on
                with suppress(FileNotFoundError):
                    return Path(shutil.copy(path, to / _WARM))
        return None

    def has_begun(self, plan: Plan) -> bool:
        """Return whether a run of this plan can begin, as far as it needs the synchronous reference."""
        with TemporaryDirectory() as folder:
            return not plan.cluster.first_position or self.early_warm_start(plan, Path(folder)) is not None

    def train(self, kind: Kind, plan: Plan, observe: Callable[[Plan, str], Observer]) -> Reference:
        """Return the reference, trained now unless another harness has done it meanwhile.

        Raises:
            NoReferenceError: it was trained now and did not finish.
            KeyboardInterrupt: Ctrl-C while it was trained; nothing is left of it.
        """
        folder = self._folder(kind, plan)
        try:
            with _locked(folder.with_suffix(".lock")):
                if not isinstance(kept := _kept(folder), Reference):
                    shutil.rmtree(folder, ignore_errors=True)
                    self._train(kind, plan, folder, observe)
                    kept = _kept(folder)
        except PermissionError as error:
            raise NoReferenceError(f"{error.filename}: a reference can't be kept there: {error.strerror}; set "
                                   f"XDG_CACHE_HOME to a folder that can be written") from error
        if not isinstance(kept, Reference):
            raise NoReferenceError(f"{folder}: what was just written there is damaged: {kept or 'it is gone'}")
        if not plan.trainer.baselines_are_kept:
            shutil.rmtree(folder, ignore_errors=True)
            folder.with_suffix(".lock").unlink(missing_ok=True)
        return kept

    def _folder(self, kind: Kind, plan: Plan) -> Path:
        once = "" if plan.trainer.baselines_are_kept else f"-{self._undo_log.token[:16]}"
        return self._cache / f"{kind}-{key(kind, plan, self._corpus_digest, self._virtual)}{once}"

    def _train(self, kind: Kind, plan: Plan, folder: Path, observe: Callable[[Plan, str], Observer]) -> None:
        bare = plan.without_faults().model_copy(update={"deadline": max(plan.deadline, _DEADLINE_S)})
        same = bare.cluster
        bare = synchronous(bare) if kind == "synchronous" else fault_free(bare)
        work = folder.with_suffix(f".{self._undo_log.token}.work")  # by its name the reaper knows whose it is
        owed = self._undo_log.record(Remove, path=work)
        shutil.rmtree(work,
                      ignore_errors=True)  # of a simulation that was killed: it has no undo log, and no other name
        (work / "tape").mkdir(parents=True)
        try:
            settings = NodeSettings(trainer=bare.trainer.path, cluster=bare.cluster, data=self._corpus_file,
                                    initial=self.early_warm_start(plan, work) if kind != "synchronous"
                                    and plan.cluster.first_position else None)
            save(bare, work / "plan.json")
            run = RunFolder(work)
            stage = self._stage(bare, run, settings, self._undo_log)
            outcome = Experiment(bare, stage, observe(bare, kind)).perform()
            if outcome.kind == "interrupted":
                raise KeyboardInterrupt
            if outcome.kind != "finished":
                name = plan.trainer.baseline_name if kind == "fault-free" else kind
                raise NoReferenceError(f"the {name} reference run did not finish: {outcome.message}")
            if why := _too_short(bare, run):
                raise NoReferenceError(f"the {plan.trainer.baseline_name} reference run {why}")
            self._keep(kind, folder, run, alike=bare.cluster == same)
        finally:
            shutil.rmtree(work, ignore_errors=True)
            self._undo_log.complete(owed)

    def _keep(self, kind: Kind, folder: Path, run: RunFolder, *, alike: bool) -> None:
        """`alike`: it is of the same nodes, so that the gaps between its merges tell of theirs."""
        curve = loss_curve(run)
        merges = [event.t for event in run.tape().of(Merge)]
        gaps = sorted(later - earlier for earlier, later in pairwise(merges))
        kept = run.path / "kept"
        kept.mkdir()
        if kind == "synchronous":
            (run.path / "snapshots" / _FIRST).replace(kept / _WARM)
        workers = {worker: _points(reports) for worker, reports in
                   run.plan().trainer.workers_losses(run.tape()).items()}
        reference = Reference(kind=kind, key=folder.name, curve=curve, workers=workers,
                              rounds=_rounds(run, lambda told: told.losses),
                              digests=_rounds(run, lambda told: told.digests),
                              wall=run.tape().events[-1].t,
                              merge_gap_p99=gaps[int(0.99 * (len(gaps) - 1))] if gaps and alike else None)
        content = reference.model_dump(mode="json")
        RunFolder(kept).write(_FILE, {"reference": content, "digest": _digest(content, kept / _WARM)})
        kept.rename(folder)  # whole or not at all


def _too_short(plan: Plan, run: RunFolder) -> str:
    """Return why nothing can be held against a run that ended by itself, with the last that it said; empty: it is
    whole."""
    ends = run.tape().of(Finished, node=plan.trainer.recorder)
    if not (why := plan.trainer.unfinished((ends[0].processed or 0) if ends else 0)):
        return ""
    said = [f"\n  {name}: {line}" for name in plan.cluster.names for line in run.log_tail(name, _TOLD_LINES)]
    return f"{why}; the last that it said:{''.join(said) or ' nothing'}"


def _kept(folder: Path) -> Reference | str:
    """Return the reference that the cache has there; else what is wrong with it, which is empty where there is none."""
    if not folder.exists():
        return ""
    recorded = RunFolder(folder).document(_FILE)
    content = recorded.get("reference")
    if not isinstance(content, dict):
        return "it has no curve that can be read"
    if recorded.get("digest") != _digest(content, folder / _WARM):
        return "it is not what was written"
    try:
        return Reference.model_validate(content)
    except ValidationError as error:
        return first(error)


def _digest(content: dict[str, Any], warm: Path) -> str:
    """Return the digest of a reference and of the warm start that it left, if it left one."""
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode())
    digest.update(warm.read_bytes() if warm.exists() else b"")
    return digest.hexdigest()


def loss_curve(run: RunFolder, tell: Callable[[int, int], None] = lambda done, of: None) -> tuple[LossPoint, ...]:
    """Evaluate a run's snapshots and read the curve. A harness that has imported torch for a simulation does so itself;
    others need no torch, and leave it to a process of its own.

    Args:
        run: its folder.
        tell: is called with how many snapshots are done, and of how many.

    Raises:
        NoReferenceError: the evaluation failed.
    """
    if (plan := run.plan()).trainer.tells_losses:
        return reported_curve(plan, run.tape())
    if not (run.path / "curve.json").exists():
        (_evaluate if "torch" in sys.modules else _evaluate_apart)(run, tell)
    return tuple(LossPoint.model_validate(point) for point in run.document("curve.json").get("curve", []))


def _evaluate(run: RunFolder, tell: Callable[[int, int], None]) -> None:
    torch = sys.modules["torch"]
    threads = torch.get_num_threads()
    try:
        evaluate(run.path, tell)
    except (CheckpointError, TrainerError) as error:
        raise NoReferenceError(f"the snapshots could not be evaluated: {error}") from error
    finally:
        torch.set_num_threads(threads)  # the process may be a user's own


def _evaluate_apart(run: RunFolder, tell: Callable[[int, int], None]) -> None:
    with TemporaryFile("w+") as said:
        command = [sys.executable, "-m", "diloco_chaos.harness.trainers.node.evaluate", str(run.path), str(os.getpid())]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=said, text=True) as measuring:
            try:
                for line in measuring.stdout or ():
                    counts = line.split()
                    if len(counts) == 2 and all(map(str.isdigit, counts)):  # torch may say something, too
                        tell(*map(int, counts))
            except BaseException:
                measuring.kill()
                raise
        if measuring.returncode != 0:
            said.seek(0)
            raise NoReferenceError(f"the snapshots could not be evaluated:\n{said.read().strip()[-2000:]}")


def reported_curve(plan: Plan, tape: Tape) -> tuple[LossPoint, ...]:
    """Return the loss curve of a trainer whose nodes report their losses."""
    return _points(plan.trainer.told_losses(tape))


def _rounds(run: RunFolder,
            what: Callable[[ToldRound], Sequence[T]]) -> dict[str, tuple[tuple[int, tuple[T, ...]], ...]]:
    """Return what every worker told of every round, where workers number their rounds."""
    plan = run.plan()
    rounds: dict[str, list[tuple[int, tuple[T, ...]]]] = {}
    for told in told_rounds(run.tape().of(Step), together=plan.cluster.blocking) if plan.trainer.tells_losses else ():
        if what(told) and not told.void:
            rounds.setdefault(told.worker, []).append((told.round, tuple(what(told))))
    return {worker: tuple(mine) for worker, mine in rounds.items()}


def _points(reports: Iterable[ToldLoss]) -> tuple[LossPoint, ...]:
    return tuple(LossPoint(number=report.number, processed=report.round, merged=report.round, t=report.t,
                           loss=report.loss, error=report.error) for report in reports)


def drop_snapshots(run: RunFolder) -> None:
    """Keep the last snapshot only: the curve holds what the others showed."""
    for path in sorted((run.path / "snapshots").glob("*.safetensors"))[:-1]:
        path.unlink()


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
