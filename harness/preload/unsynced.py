"""What a node's processes have written and not fsynced, by a journal that they share, and how it is lost. The journal's
twin is unsynced.c.

The model: what a file system's own journal keeps survives. Files that were made, renamed, cut off or removed stay so,
whether or not their folder was synced. Of their contents only that survives which was there before any process of the
node wrote into the file, or at its last fsync: what was appended is gone, what was overwritten is back. So a new file
that was renamed and not synced is there, and empty.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

WRITTEN_BACK_S = 30.0
"""What was left alone for so long the kernel has written back by itself, as Linux does."""
FILES = 2048
"""The most that can be followed at a time."""
_MAGIC, _LONGEST, _USED, _BEYOND = 0x316C6E72756F6A64, 512, 1, 3
_BEFORE = struct.Struct("<QQQ")
_FOLLOWS_NO_LINK, _BASIC_AND_BIRTH = 0x100, 0x0FFF
_STATX = struct.Struct("<32xQ40xqI4x32x8xII112x")
"""Inode, when it was made (s, ns), and the two numbers of the device."""


class _Id(ctypes.Structure):
    _fields_ = (("device", ctypes.c_uint64), ("inode", ctypes.c_uint64), ("made", ctypes.c_uint64))


class _File(ctypes.Structure):
    _fields_ = (("state", ctypes.c_uint32), ("current", ctypes.c_uint32), ("id", _Id), ("durable", ctypes.c_uint64),
                ("synced", ctypes.c_uint32), ("aside", ctypes.c_uint32), ("beyond", ctypes.c_uint32),
                ("unused", ctypes.c_uint32), ("names", (ctypes.c_char * _LONGEST) * 2))


class _Journal(ctypes.Structure):
    _fields_ = (("magic", ctypes.c_uint64), ("missed", ctypes.c_uint32), ("unused", ctypes.c_uint32),
                ("files", _File * FILES))


@dataclass(frozen=True)
class Loss:
    """What a node has lost with its power."""

    lost: tuple[tuple[str, int], ...]
    """Files, and how many bytes of each; those that lost most first."""
    synced: int
    """Files of which nothing was lost: all that was written was synced, if anything was."""
    older: int = 0
    """Files that were not synced, and left alone for so long that the kernel had written them back."""
    mapped: int = 0
    """Files that were spared: they are mapped, and nobody knows which of their pages were written."""
    missed: int = 0
    """Files that could not be followed: there were too many."""
    why: str = ""
    """Why nothing can be known of it; empty: it is."""

    @property
    def bytes(self) -> int:
        """Return how many were lost in all."""
        return sum(size for _, size in self.lost)


class Journal:
    """The journal of one node, in a file beside its page."""

    def __init__(self, page: Path) -> None:
        """Make it anew. `page`: that of the node.

        Raises:
            OSError: it can't be made.
        """
        self._path = page.with_name(f"{page.name}.unsynced")
        self.remove()
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(fd, 0, ctypes.sizeof(_Journal))  # a full disk is to be told here, not by a signal
            self._map = mmap.mmap(fd, ctypes.sizeof(_Journal))
        finally:
            os.close(fd)
        self._journal = _Journal.from_buffer(self._map)
        self._journal.magic = _MAGIC

    def lose(self, means: Callable[[str], bool]) -> Loss:
        """Take from the files of this name what is not durable. No process that has them open is there any more; what
        stands in them now is durable for those that come.

        Raises:
            OSError: a file can't be changed.
        """
        lost: dict[str, int] = {}
        synced = older = mapped = 0
        for number, file in enumerate(self._journal.files):
            if file.state != _USED or not (name := _name(file)) or not any(map(means, {name, *_names(file)})):
                continue
            gone = max(0, os.stat(name).st_size - file.durable) + sum(len(old) for _, old in self._aside(number, file))
            if file.beyond & _BEYOND:
                mapped += 1
            elif not gone:
                synced += 1
            elif time.time() - os.stat(name).st_ctime > WRITTEN_BACK_S:
                older += 1
            else:
                self._cut(name, number, file)
                lost[name] = gone
        missed = int(self._journal.missed)
        self._begin_anew()
        return Loss(tuple(sorted(lost.items(), key=lambda entry: -entry[1])), synced, older, mapped, missed)

    def remove(self) -> None:
        """The run is over: it is no more; harmless where it is not."""
        for path in self._path.parent.glob(f"{self._path.name}*"):
            path.unlink(missing_ok=True)

    def _begin_anew(self) -> None:
        ctypes.memset(ctypes.addressof(self._journal.files), 0, ctypes.sizeof(self._journal.files))
        self._journal.missed = 0
        for path in self._path.parent.glob(f"{self._path.name}.*"):
            path.unlink(missing_ok=True)

    def _cut(self, name: str, number: int, file: _File) -> None:
        with open(name, "r+b") as whole:
            for at, old in reversed(list(self._aside(number, file))):
                whole.seek(at)
                whole.write(old)
            whole.truncate(min(file.durable, os.fstat(whole.fileno()).st_size))

    def _aside(self, number: int, file: _File) -> Iterator[tuple[int, bytes]]:
        """Yield what was put aside before it was overwritten, the first first, as far as it is durable still."""
        path = self._path.with_name(f"{self._path.name}.{number}")
        if not file.aside or not path.exists():
            return
        with path.open("rb") as records:
            while len(head := records.read(_BEFORE.size)) == _BEFORE.size:
                magic, at, size = _BEFORE.unpack(head)
                old = records.read(size)
                if magic != _MAGIC or len(old) != size:
                    return  # the process was killed before it wrote over these
                if at < file.durable:
                    yield at, old[:file.durable - at]


def _names(file: _File) -> list[str]:
    names = [os.fsdecode(file.names[number].value) for number in (file.current, 1 - file.current)]
    return [name for name in names if name]


def _name(file: _File) -> str:
    """Return the name that a file has now; empty: it is gone. Rust renames by no call of the C library, so files beside
    those that it was known by may be it."""
    known, names = (file.id.device, file.id.inode, file.id.made), _names(file)
    if named := next((name for name in names if _identified(name) == known), ""):
        return named
    return next((beside for name in names for beside in _of_inode(os.path.dirname(name), file.id.inode)
                 if _identified(beside) == known), "")


def _of_inode(folder: str, inode: int) -> list[str]:
    with suppress(OSError), os.scandir(folder) as entries:
        return [entry.path for entry in entries if entry.inode() == inode]
    return []


def _identified(name: str) -> tuple[int, int, int] | None:
    """Return a file's device, inode and when it was made (ns), which `os.stat` does not tell; None: it is not there."""
    done = ctypes.create_string_buffer(256)
    flags = ctypes.c_int(_FOLLOWS_NO_LINK)
    if ctypes.CDLL(None).statx(-100, os.fsencode(name), flags, _BASIC_AND_BIRTH, done) != 0:
        return None
    inode, seconds, nanoseconds, major, minor = _STATX.unpack(done.raw)
    return major << 32 | minor, inode, seconds * 1_000_000_000 + nanoseconds
