"""A simulated folder: what was written and not synced is lost when the machine loses its power."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from dataclasses import dataclass

from diloco_chaos.harness.record.storage.disk import CheckpointError, Content
from diloco_chaos.harness.simulation.disk_faults import DiskFaults, PartlyError

_TORN = b"\0" * 64


@dataclass
class _File:
    """One file, under whatever names it has."""

    held: Content | bytes
    """Bytes where it is damaged, or cut off."""
    synced: bool = False


class MemoryDisk:
    """Implements `diloco_chaos.harness.record.storage.disk.Disk`.

    The names that a crash of the machine leaves are those of the last `sync_names`; a file whose content was never
    synced is there, and torn.
    """

    def __init__(self, folder: str = "") -> None:
        """`folder`: the path that faults of calls know it by."""
        self.faults = DiskFaults(folder)
        self.limit: int | None = None
        """No file may be larger (bytes); a larger one is cut off there, with EFBIG."""
        self.full = False
        """Nothing more can be written: ENOSPC."""
        self._files: dict[str, _File] = {}
        self._stable: dict[str, _File] = {}  # the names on stable storage

    def write(self, name: str, content: Content) -> None:
        """Write it, as far as there is room, and no fault of calls has it."""
        self.faults.called("open", name)
        if self.limit is not None or self.full:
            data = content.encoded()
            if self.full or len(data) > (self.limit or 0):
                self._files[name] = _File(data[:0 if self.full else self.limit])
                code = errno.ENOSPC if self.full else errno.EFBIG
                raise OSError(code, os.strerror(code), name)
        self._files[name] = _File(self._written(name, content) if self.faults else content)

    def _written(self, name: str, content: Content) -> Content | bytes:
        """Return what a call on which faults may be leaves in a file.

        Raises:
            OSError: it fails; what it did before is in the file.
        """
        data = content.encoded()
        try:
            changed = self.faults.passed("write", name, data)
        except PartlyError as error:
            self._files[name] = _File(error.done)
            raise
        return content if changed == data else changed

    def sync(self, name: str) -> None:
        """From now on it survives, once its name does."""
        self.faults.called("fsync", name)
        self._files[name].synced = True

    def rename(self, old: str, new: str) -> None:
        """Give it another name."""
        self.faults.called("rename", old)
        self._files[new] = self._files.pop(old)

    def sync_names(self) -> None:
        """The names as they are now survive."""
        self._stable = dict(self._files)

    def read(self, name: str) -> Content:
        """Return a file's content, checked where it may not be what was written.

        Raises:
            CheckpointError: there is no such file, or it is damaged.
        """
        file = self._files.get(name)
        if file is None:
            raise CheckpointError(f"{name}: can't be read as a checkpoint: no such file")
        try:
            self.faults.called("open", name)
            self.faults.called("read", name)
        except OSError as error:
            raise CheckpointError(f"{name}: can't be read as a checkpoint: {error.strerror}") from error
        return file.held if isinstance(file.held, Content) else Content.decoded(file.held, name)

    def names(self) -> Iterable[str]:
        """Return the names of all files, in order."""
        return sorted(self._files)

    def remove(self, name: str) -> None:
        """Remove it."""
        del self._files[name]

    def lose_power(self) -> None:
        """Keep only what is on stable storage; files that were not synced are torn."""
        for file in self._stable.values():
            if not file.synced:
                file.held = _TORN
        self._files = dict(self._stable)

    def data(self, name: str) -> bytes:
        """A file's bytes."""
        held = self._files[name].held
        return held if isinstance(held, bytes) else held.encoded()

    def alter(self, name: str, data: bytes | None) -> None:
        """Replace a file's bytes, on stable storage too; None removes it."""
        for files in (self._files, self._stable):
            files.pop(name, None)
            if data is not None:
                files[name] = _File(data, synced=True)
