"""Whether a file is read from now on: what inotify(7) tells of it, or of the folder that it was in.

A file was read where bytes came from it, or where a process closed it that could not write to it (reading what is
mapped into memory is not seen). Writing it anew is no reading. Nor is what the harness does: files that it has open, as
it follows them, do not count, and neither do listings of folders, since faults wait for files in them.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Generic, TypeVar

K = TypeVar("K")
_READ = 0x01 | 0x10  # IN_ACCESS, IN_CLOSE_NOWRITE
_OF_FOLDER = 0x40000000
_HEAD = struct.Struct("iIII")
_MOST_BYTES = 1 << 16


class Reads(Generic[K]):
    """Watches of files, each under a key. Nothing is watched where the kernel has no watch left."""

    def __init__(self) -> None:
        self._descriptor = -1
        self._watched: dict[int, tuple[Path, list[K]]] = {}
        self._read: list[K] = []

    def watch(self, path: Path, key: K) -> bool:
        """Watch a file; where it is gone, its folder: to read another file there is to have looked for it. Return
        whether that can be done."""
        libc, watched = ctypes.CDLL(None), path if path.exists() else path.parent
        if self._descriptor < 0:
            self._descriptor = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        number = libc.inotify_add_watch(self._descriptor, os.fsencode(watched), _READ)
        if number < 0:
            return False
        self._watched.setdefault(number, (watched, []))[1].append(key)
        return True

    @contextmanager
    def ignored(self) -> Iterator[None]:
        """What is read within this is the harness' own reading."""
        self._look()
        read = list(self._read)
        yield
        self._look()
        self._read = read

    def new(self) -> list[K]:
        """Return the keys of what was read since the last call, each once."""
        self._look()
        read, self._read = list(dict.fromkeys(self._read)), []
        return read

    def close(self) -> None:
        """Watch nothing any more."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor, self._watched = -1, {}

    def _look(self) -> None:
        with suppress(BlockingIOError):
            while self._descriptor >= 0 and (data := os.read(self._descriptor, _MOST_BYTES)):
                offset = 0
                while offset < len(data):
                    number, mask, _, length = _HEAD.unpack_from(data, offset)
                    name = os.fsdecode(data[offset + _HEAD.size:offset + _HEAD.size + length].rstrip(b"\0"))
                    offset += _HEAD.size + length
                    if mask & _READ and not mask & _OF_FOLDER and number in self._watched:
                        path, keys = self._watched[number]
                        self._read += keys if not _open_here(path / name) else []


def _open_here(path: Path) -> bool:
    """Return whether this process has a file open."""
    for entry in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # closed since
            if os.readlink(f"/proc/self/fd/{entry}") == str(path.resolve()):
                return True
    return False
