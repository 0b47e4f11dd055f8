"""Files that hold tensors: written whole or not at all, and checked when they are read.

What must not be lost is written twice, one copy after the other: a crash leaves at least one of them whole, and a
damaged one is made good from the other. Where a crash came between the two writes, they differ by one version that
nobody has seen yet.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path, PurePath
from typing import Any

from diloco_chaos.harness.base.tensors import Tensors
from diloco_chaos.harness.record.storage.disk import CheckpointError, Content, Disk, FolderDisk

BEFORE_RENAME = "checkpoint.before_rename"
PARTIAL = ".partial"
BEHIND = "a version behind"
"""A crash came between the two writes. It must be made good before anybody hears of the newer version: if that copy
were damaged next, the run would go back to the older one."""

__all__ = ["BEFORE_RENAME", "PARTIAL", "CheckpointError", "copies", "load", "load_either", "save", "saving",
           "saving_both", "tidied"]


def saving(disk: Disk, name: str, content: Content) -> Iterator[str]:
    """Write so that a crash at any moment leaves the old file or the new one, whole: a temporary file is written,
    fsynced and renamed, and the folder fsynced. Yields the name of each moment between two of these steps.

    Raises:
        OSError: the file could not be written; the old one is untouched.
    """
    temporary = name + PARTIAL
    disk.write(temporary, content)
    yield "checkpoint.before_sync"
    disk.sync(temporary)
    yield BEFORE_RENAME
    disk.rename(temporary, name)
    yield "checkpoint.before_sync_names"
    disk.sync_names()


def saving_both(disk: Disk, name: str, content: Content) -> Iterator[str]:
    """`saving`, twice; the moments of the second are called `mirror`.

    Raises:
        OSError: as `saving`.
    """
    first, mirror = copies(name)
    yield from saving(disk, first, content)
    yield "checkpoint.between"
    for _ in saving(disk, mirror, content):
        yield "mirror"


def save(path: Path, tensors: Tensors, meta: dict[str, Any]) -> None:
    """`saving`, at once.

    Raises:
        OSError: as `saving`.
    """
    for _ in saving(FolderDisk(path.parent), path.name, Content(tensors, meta)):
        pass


def tidied(disk: Disk) -> set[str]:
    """Remove the temporary files of writes that never ended; the names of all others."""
    names = set(disk.names())
    leftovers = {name for name in names if name.endswith(PARTIAL)}
    for leftover in sorted(leftovers):
        disk.remove(leftover)
    return names - leftovers


def copies(name: str) -> tuple[str, str]:
    """Return what the two copies are called."""
    path = PurePath(name)
    return name, f"{path.stem}.mirror{path.suffix}"


def load_either(disk: Disk, name: str, names: Collection[str]) -> tuple[Content, dict[str, str]]:
    """Return the newest whole copy (by its `version`), and what is wrong with any other: file name -> reason. `names`:
    the names of the disk's files.

    Raises:
        CheckpointError: no copy is whole; with the reason for each.
    """
    whole: dict[str, Content] = {}
    damaged: dict[str, str] = {}
    for copy in copies(name):
        try:
            whole[copy] = disk.read(copy)
        except CheckpointError as error:
            damaged[copy] = str(error) if copy in names else "missing"
    if not whole:
        raise CheckpointError("; ".join(damaged.values()))
    newest = max(whole.values(), key=lambda content: int(content.meta["version"]))
    damaged |= {copy: BEHIND for copy, content in whole.items() if content.meta["version"] != newest.meta["version"]}
    return newest, damaged


def load(path: Path) -> tuple[Tensors, dict[str, Any]]:
    """Read a checkpoint and check it against its digest.

    Raises:
        CheckpointError: it is missing, torn, or its content does not match its digest.
    """
    content = FolderDisk(path.parent).read(path.name)
    return content.tensors, content.meta
