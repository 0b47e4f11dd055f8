"""Consistent checkpoints of the whole run: what every learner and the syncer were at one cut.

The syncer notes what it has and asks everybody who is there to do the same, on links that keep the order of messages
(Chandy and Lamport, "Distributed snapshots", 1985). So nobody's part tells of a message whose sending is not in its
sender's part. What was under way at the cut need not be kept: reports are cumulative, a learner is asked again for what
it had answered, and who holds an old version is told the new one, all as after a connection that broke.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterable, Sequence
from itertools import count
from pathlib import Path

from harness.trainer.protocol.effects import Effect, Record, Save
from harness.trainer.storage import checkpoint
from harness.trainer.storage.disk import Content

CHECKPOINTS = "checkpoints"
"""The folder of all global checkpoints, in the run's."""
BACK = ".back"
"""Ending of the mark beside a part that was put back."""
_PER_INCARNATION = 1_000_000  # of the syncer, so that no two cuts of a run have the same number


class GlobalCheckpoints:
    """Which cut is being made, and who has still to save its part; one at a time. No I/O."""

    def __init__(self, every: int, incarnation: int) -> None:
        """`every`: global steps between two; 0: there are none."""
        self._every = every
        self._numbers = count(incarnation * _PER_INCARNATION + 1)
        self._open = 0
        self._missing: set[str] = set()
        self.whole = 0
        """The newest that everybody has saved; 0: none."""

    def due(self, before: int, step: int) -> bool:
        """Whether the global step, going from one to the other, comes to where a cut is to be made."""
        return bool(self._every) and before // self._every < step // self._every

    def begin(self, step: int, nodes: Collection[str]) -> tuple[int, Iterable[Effect]]:
        """The number of a new cut, of which these nodes shall save their parts."""
        overtaken = self.broken(min(self._missing)) if self._missing else ()
        self._open, self._missing = next(self._numbers), set(nodes)
        return self._open, (*overtaken, Record("checkpoint_begun",
                                               {"checkpoint": self._open, "step": step, "nodes": sorted(nodes)}))

    def saved(self, node: str, cut: int) -> Iterable[Effect]:
        """A node has saved its part."""
        if cut == self._open and node in self._missing:
            self._missing.discard(node)
            if not self._missing:
                self.whole = cut
                yield Record("checkpoint_complete", {"checkpoint": cut})

    def broken(self, node: str) -> Sequence[Effect]:
        """Nothing will come from this node: what it was to save is lost, and with it the cut."""
        if node not in self._missing:
            return ()
        self._missing.clear()
        return (Record("checkpoint_incomplete", {"checkpoint": self._open, "without": node}),)


def keep(run: Path, node: str, save: Save) -> None:
    """Write a node's part to stable storage, whole or not at all; cuts before `save.keep` go.

    Raises:
        OSError: it can't be written.
    """
    checkpoint.save(part_file(run, save.cut, node), save.tensors, save.meta)
    for old in numbers(run):
        if old < save.keep:
            folder = part_file(run, old, node).parent
            for part in folder.glob("*.safetensors"):  # first, so that none is left without its mark
                part.unlink(missing_ok=True)
            shutil.rmtree(folder, ignore_errors=True)


def numbers(run: Path) -> list[int]:
    """All cuts of which anything is there, the newest first."""
    return sorted((int(path.name) for path in (run / CHECKPOINTS).glob("*") if path.name.isdigit()), reverse=True)


def part_file(run: Path, cut: int, node: str) -> Path:
    """Where a node's part lies."""
    return run / CHECKPOINTS / f"{cut:09d}" / f"{node}.safetensors"


def part_of(run: Path, cut: int, node: str) -> Content | None:
    """A node's part; None where it had none in this cut.

    Raises:
        CheckpointError: it can't be trusted.
    """
    path = part_file(run, cut, node)
    try:
        return Content(*checkpoint.load(path)) if path.exists() else None
    except checkpoint.CheckpointError:
        if path.exists():
            raise
        return None  # a newer cut became whole meanwhile, and this one went


def own(part: Content | None, incarnation: int) -> Content | None:
    """The part, if it is this process's: a learner that comes after the one that saved it begins anew."""
    return part if part is not None and part.meta.get("incarnation", incarnation) == incarnation else None
