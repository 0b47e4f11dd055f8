"""Resumes a run that was ended from the last global checkpoint that all nodes had saved, in a folder of its own."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from diloco_chaos.chaos.evidence.run_folder import FolderError, RunFolder, environment
from diloco_chaos.chaos.runner import own_commands
from diloco_chaos.chaos.runner.backends import Backend
from diloco_chaos.chaos.runner.cleanup import clean, settled
from diloco_chaos.chaos.runner.experiment import Experiment
from diloco_chaos.chaos.runner.resume_point import LostSince, ResumePoint, checkpoints_of
from diloco_chaos.chaos.runner.run import Audience, Result, concluded, repeating
from diloco_chaos.chaos.scenario import plan as plans
from diloco_chaos.chaos.scenario.model import COORDINATOR
from diloco_chaos.harness.base.processes import identity
from diloco_chaos.harness.base.units import show_seconds
from diloco_chaos.harness.places.registry import DEFAULT, place_named
from diloco_chaos.harness.record.storage import checkpoint
from diloco_chaos.harness.record.storage.disk import CheckpointError, file_digest
from diloco_chaos.harness.record.tape import writing
from diloco_chaos.harness.record.tape.events import End, Finished
from diloco_chaos.harness.trainers.node.settings import SETTINGS, NodeSettings
from diloco_chaos.harness.trainers.storage import global_checkpoint


def origin_of(folder: RunFolder, checkpoint: int = 0) -> tuple[ResumePoint, list[str]]:
    """Return what a run can go on from, and why not from something newer. `checkpoint` is the number of a global
    checkpoint; 0 means the newest that is whole.

    Raises:
        ScenarioError: its plan can't be read.
        FolderError: it can't go on; the message says why.
    """
    plan = folder.plan()
    if not folder.over:
        raise FolderError(f"{folder.path}: this run still goes on; end it first (Ctrl-C)")
    settled(folder.harness.pid)
    recorded = folder.tape()
    if recorded.of(Finished, node=COORDINATOR):
        raise FolderError(f"{folder.path}: its training was over, there is nothing to go on with; its verdicts: "
                          f"diloco-chaos check {folder.path}")
    if any(end.outcome == "deadline" for end in recorded.of(End)):
        raise FolderError(f"{folder.path}: its deadline of {show_seconds(plan.deadline)} has passed, no time is left "
                          f"to go on in; begin again with a later one: {folder.repeat} "
                          f"--deadline {3 * plan.deadline:.0f}s")
    if why := place_named(folder.place or DEFAULT).not_resumed:
        raise FolderError(f"{folder.path}: {why}; run it again: {folder.repeat}")
    known = checkpoints_of(recorded)
    if checkpoint and checkpoint not in known:
        raise FolderError(f"{folder.path}: there is no global checkpoint {checkpoint}: {_listed(known)}; without "
                          f"--from-checkpoint it goes on from the newest that is whole")
    refused: list[str] = []
    for number in [checkpoint] if checkpoint else known:
        origin = ResumePoint(plan, recorded, folder.path.name, number)
        try:
            for name, _ in origin.parts:
                if global_checkpoint.part_of(folder.path, number, name) is None:
                    raise CheckpointError(f"{global_checkpoint.part_file(folder.path, number, name)} is missing")
            return origin, refused
        except CheckpointError as error:
            refused.append(f"global checkpoint {number} can't be trusted: {error}")
    raise FolderError("\n".join([
        f"{folder.path}: there is no global checkpoint to resume from; begin again: {folder.repeat}", *refused]))


def resume(folder: RunFolder, origin: ResumePoint, runs: Path, audience: Audience, backend: Backend) -> Result:
    """Go on, to the end, and judge the whole run: what lay before the checkpoint, and what comes after it.

    Args:
        folder: of the run that was ended; nothing in it is changed.
        origin: of that run.
        runs: where the new folder is made.
        audience: hears how the run goes.
        backend: where to run.

    Raises:
        FolderError, ScenarioError: what it began from is not there any more, or the place can't do what is asked for.
        UndoLogError: the undo log can't be written.
    """
    backend.refuse(origin.plan)
    settings = folder.settings(origin.plan)
    _as_it_began(folder, origin, settings)
    for line in clean():
        audience.say(f"left behind by an earlier run: {line}")
    with backend.cleanup_guard() as undo_log:
        own_commands.remember(origin.plan)
        new = _copied(folder, origin, runs, backend)
        stage = backend.stage(origin.plan, new, settings.model_copy(
            update={"checkpoint": origin.checkpoint, "elapsed": origin.time}), undo_log)
        return concluded(Experiment(origin.plan, stage, audience.watch(origin.plan, "run"), origin), new, audience)


def _as_it_began(folder: RunFolder, origin: ResumePoint, settings: NodeSettings) -> None:
    """Refuse what would go on with another training than the one that the folder's plan and manifest name."""
    manifest = folder.manifest()
    corpus = manifest.get("corpus")
    for path, digest in ((settings.data, corpus.get("digest") if isinstance(corpus, dict) else None),
                         (settings.initial, manifest.get("initial"))):
        if path is None and digest is None:
            continue
        if path is None or not path.exists():
            raise FolderError(f"{path or 'a file'}, which the run began from, is not there any more; begin again: "
                              f"{folder.repeat}")
        if file_digest(path) != digest:
            raise FolderError(f"{path} is not what the run began from: its digest is not that of the manifest; begin "
                              f"again: {folder.repeat}")


def _copied(folder: RunFolder, origin: ResumePoint, runs: Path, backend: Backend) -> RunFolder:
    """Return a new folder with all that the run had left by the checkpoint."""
    new = RunFolder.create(runs, origin.plan.scenario)
    writing.write(origin.begun, new.path / "tape")
    source, copy = (global_checkpoint.part_file(path, origin.checkpoint, COORDINATOR).parent
                    for path in (folder.path, new.path))
    shutil.copytree(source, copy, ignore=shutil.ignore_patterns(f"*{global_checkpoint.BACK}"))
    if (folder.path / "references").is_dir():
        shutil.copytree(folder.path / "references", new.path / "references")
    (new.path / "snapshots").mkdir()
    for snapshot in (folder.path / "snapshots").glob("*.safetensors"):
        with suppress(CheckpointError):  # then the loss curve lacks a point
            if checkpoint.load(snapshot)[1]["t"] <= origin.at.t:
                shutil.copy2(snapshot, new.path / "snapshots")
    new.write("manifest.json", folder.manifest() | {
        "run": new.path.name, "created": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "harness": identity(os.getpid()), "repeat": repeating(new, backend),
        "resumed": {"run": origin.run, "checkpoint": origin.checkpoint, "t": origin.time, "void": _void(origin.lost),
                    "environments": [*folder.manifest().get("resumed", {}).get("environments", []),
                                     {name: folder.manifest().get(name) for name in environment()}]},
        **environment()})
    new.write(SETTINGS, folder.document(SETTINGS))
    plans.save(origin.plan, new.path / "plan.json")  # what makes it a run's folder comes last
    return new


def _void(lost: LostSince) -> dict[str, object]:
    """Return what lay after the checkpoint, in a form for programs."""
    return {"tokens": lost.tokens, "faults": list(lost.faults),
            "steps": {f"{name}.{number}": span for (name, number), span in lost.steps.items()},
            "versions": {str(fragment): span for fragment, span in lost.versions.items()}}


def resume_summary(origin: ResumePoint) -> list[str]:
    """Say from where the run goes on, and what lay after that: steps and versions that are void, faults that come
    again."""
    lost = origin.lost
    new = [f"{name}.{number}" for name, number in origin.incarnations.items()
           if name != COORDINATOR and (name, number) not in origin.parts]
    return [f"resuming from global checkpoint {origin.checkpoint} of {origin.run}: global step {origin.at.step}, "
            f"{show_seconds(origin.at.t)} after its begin",
            *([f"no part of it, and begun anew: {', '.join(new)}"] if new else []),
            *([f"after it, and void: {lost.tokens:,} tokens"] if lost.tokens else []),
            *(f"after it, and void: {_span('step', begin, end)} of {name}.{number}"
              for (name, number), (begin, end) in sorted(lost.steps.items())),
            *([f"after it, and void: {_versions(lost)}"] if lost.versions else []),
            *(f"after it, or on at it, and to come again: {words}" for words in lost.faults)]


def _versions(lost: LostSince) -> str:
    return ", ".join(f"{_span('version', begin, end)} of fragment {fragment}"
                     for fragment, (begin, end) in sorted(lost.versions.items()))


def _span(what: str, begin: int, end: int) -> str:
    return f"{what}s {begin} to {end}" if begin < end else f"{what} {begin}"


def _listed(known: Sequence[int]) -> str:
    return f"there {'is' if len(known) == 1 else 'are'} {', '.join(map(str, known)) or 'none'}"
