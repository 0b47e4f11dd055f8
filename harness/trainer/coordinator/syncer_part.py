"""The syncer's part of a global checkpoint: all its fragments' files in one, and how they are put back."""

from __future__ import annotations

from collections.abc import Sequence

from diloco_chaos.harness.base.tensors import Tensors, add_prefix, strip_prefix
from diloco_chaos.harness.record.storage import checkpoint
from diloco_chaos.harness.record.storage.disk import Content, Disk
from diloco_chaos.harness.trainer.coordinator.fragment_state import fragment_file


def syncers(files: Sequence[Content]) -> tuple[Tensors, dict[str, object]]:
    """Return what the syncer's files are to hold, in the order of their fragments, under one roof."""
    tensors: Tensors = {}
    for index, file in enumerate(files):
        tensors |= add_prefix(f"{index}/", file.tensors)
    return tensors, {"fragments": [file.meta for file in files]}


def put_back(part: Content, disk: Disk) -> None:
    """Make the syncer's folder what it was at the checkpoint.

    Raises:
        OSError: a file can't be written.
    """
    for index, meta in enumerate(part.meta["fragments"]):
        content = Content(strip_prefix(f"{index}/", part.tensors), meta)
        for _ in checkpoint.saving_both(disk, fragment_file(index), content):
            pass
