"""Consistent checkpoints of the whole run: what every learner and the syncer were at one moment of the protocol.

Theory of operation
-------------------
The syncer notes what it has and asks everybody who is there to do the same, on links that keep the order of messages
(Chandy and Lamport, "Distributed snapshots", 1985). So nobody's part tells of a message whose sending is not in its
sender's part. Messages under way need not be kept: reports are cumulative, a learner is asked again for what it had
answered, and whoever holds an old version is told the new one, all as after a connection that broke.

One checkpoint is made at a time: `begin` numbers it, names who has to save a part, and gives up one that is still
under way; `saved` crosses a node off, and the last one makes it complete; `broken` gives it up where one of them is
lost before. Numbers rise over all incarnations of the syncer. A node writes its part to a temporary file, to stable
storage, and renames it: a part is there as a whole or not at all, and a checkpoint without all of its parts is never
resumed from. Older ones go when a newer one is complete, never before.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import count
from pathlib import Path

from diloco_chaos.harness.record.storage import checkpoint
from diloco_chaos.harness.record.storage.disk import Content
from diloco_chaos.harness.record.tape import events
from diloco_chaos.harness.trainers.core.effects import Effect, Save

CHECKPOINTS = "checkpoints"
"""The folder of all global checkpoints, in the run's."""
BACK = ".back"
"""Ending of the mark beside a part that was put back."""
_PER_INCARNATION = 1_000_000  # of the syncer, so that no two of a run have the same number


class GlobalCheckpoints:
    """The checkpoint that is being made, and the nodes that have still to save their parts; one at a time. No I/O."""

    def __init__(self, every: int, incarnation: int) -> None:
        """`every`: global steps between two; 0: there are none."""
        self._every = every
        self._numbers = count(incarnation * _PER_INCARNATION + 1)
        self._open = 0
        self._missing: set[str] = set()
        self.whole = 0
        """The newest that everybody has saved; 0: none."""

    def due(self, before: int, step: int) -> bool:
        """Return whether the global step, going from one to the other, comes to where a checkpoint is to be made."""
        return bool(self._every) and before // self._every < step // self._every

    def begin(self, step: int, nodes: Collection[str]) -> tuple[int, Iterable[Effect]]:
        """The number of a new one, of which these nodes shall save their parts."""
        overtaken = self.broken(min(self._missing)) if self._missing else ()
        self._open, self._missing = next(self._numbers), set(nodes)
        return self._open, (*overtaken, events.CheckpointBegun(checkpoint=self._open, step=step, nodes=sorted(nodes)))

    def saved(self, node: str, number: int) -> Iterable[Effect]:
        """A node has saved its part."""
        if number == self._open and node in self._missing:
            self._missing.discard(node)
            if not self._missing:
                self.whole = number
                yield events.CheckpointComplete(checkpoint=number)

    def broken(self, node: str) -> Sequence[Effect]:
        """Nothing will come from this node: what it was to save is lost, and with it the checkpoint."""
        if node not in self._missing:
            return ()
        self._missing.clear()
        return (events.CheckpointIncomplete(checkpoint=self._open, without=node),)


def keep(run: Path, node: str, save: Save) -> None:
    """Write a node's part to stable storage, whole or not at all; checkpoints before `save.keep` go.

    Raises:
        OSError: it can't be written.
    """
    checkpoint.save(part_file(run, save.checkpoint, node), save.tensors, save.meta)
    for old in numbers(run):
        if old < save.keep:
            folder = part_file(run, old, node).parent
            for part in folder.glob("*.safetensors"):  # first, so that none is left without its mark
                part.unlink(missing_ok=True)
            shutil.rmtree(folder, ignore_errors=True)


def numbers(run: Path) -> list[int]:
    """Return the numbers of all checkpoints of which anything is there, the newest first."""
    return sorted((int(path.name) for path in (run / CHECKPOINTS).glob("*") if path.name.isdigit()), reverse=True)


def part_file(run: Path, number: int, node: str) -> Path:
    """Return where a node's part lies."""
    return run / CHECKPOINTS / f"{number:09d}" / f"{node}.safetensors"


def part_of(run: Path, number: int, node: str) -> Content | None:
    """A node's part; None where it had none in this checkpoint.

    Raises:
        CheckpointError: it can't be trusted.
    """
    path = part_file(run, number, node)
    try:
        return Content(*checkpoint.load(path)) if path.exists() else None
    except checkpoint.CheckpointError:
        if path.exists():
            raise
        return None  # a newer one became whole meanwhile, and this one went


def own(part: Content | None, incarnation: int) -> Content | None:
    """The part, if it is this process's: a learner that comes after the one that saved it begins anew."""
    return part if part is not None and part.meta.get("incarnation", incarnation) == incarnation else None


def put_back_once(run: Path, number: int, node: str, put_back: Callable[[], None]) -> None:
    """`put_back` what a node's part holds, unless it has been done: what was lost after that must not be made good by
    what is old. A mark beside the part's file says so.

    Raises:
        OSError: a file can't be written.
    """
    mark = part_file(run, number, node).with_suffix(BACK)
    if not mark.exists():
        put_back()
        mark.touch()
