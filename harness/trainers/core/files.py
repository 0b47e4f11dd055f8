"""Files that are followed while they are written: also those that are rotated, replaced, begun anew or come later."""

from __future__ import annotations

import glob
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from typing import Generic, TypeVar

from diloco_chaos.harness.trainers.core.log_lines import Line, Lines

S = TypeVar("S")
Identity = tuple[int, int]
"""Of a file, whatever it is called: device and inode."""
_CHUNK = 1 << 20
_KNOWN_BY = 1 << 10
"""Bytes at the beginning of what was read, and at its end, by which a copy is known."""
_MOST_OPEN = 64


class _Open(Generic[S]):
    """A file."""

    def __init__(self, path: str, place: int, state: S) -> None:
        """`place`: from where on it is read."""
        self.number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # -1: it is closed
        self.place = min(place, os.fstat(self.number).st_size)
        self.lines, self.state = Lines(), state
        self.head = os.pread(self.number, min(_KNOWN_BY, self.place), 0)
        self.tail = os.pread(self.number, len(self.head), self.place - len(self.head))

    def read(self) -> Iterator[bytes]:
        """Yield what is new; from the beginning where it is shorter than it was."""
        if (size := os.fstat(self.number).st_size) < self.place:
            self.place, self.lines, self.head, self.tail = 0, Lines(), b"", b""
        while size > self.place and (data := os.pread(self.number, _CHUNK, self.place)):
            if self.place == len(self.head) < _KNOWN_BY:
                self.head = (self.head + data)[:_KNOWN_BY]
            self.tail = (self.tail + data)[-_KNOWN_BY:]
            self.place += len(data)
            yield data

    def goes_on_in(self, other: _Open[S]) -> bool:
        """Return whether the other file begins with all that was read of this one."""
        tail = os.pread(other.number, len(self.tail), self.place - len(self.tail))
        return self.place > 0 and os.pread(other.number, len(self.head), 0) == self.head and tail == self.tail

    def take_over(self, older: _Open[S]) -> None:
        """Go on from where an older file was read."""
        self.place, self.lines, self.state = older.place, older.lines, older.state
        self.head, self.tail = older.head, older.tail

    def close(self) -> None:
        """It is not read for now."""
        if self.number >= 0:
            os.close(self.number)
            self.number = -1


class Followed(Generic[S]):
    """The new lines of a file, or of all files that a pattern names."""

    def __init__(self, path: str, state: Callable[[], S], before: Mapping[Identity, int] | None = None, *,
                 many: bool = False) -> None:
        """
        Args:
            path: of the file, which need not be there yet.
            state: makes what the reader of a file keeps of it.
            before: what was there before, and how much of it: that is not read.
            many: in the path `*` stands for any name, and `**` for any folders.
        """
        self.path, self.many, self._state, self._before = path, many, state, before or {}
        self._files: dict[Identity, _Open[S]] = {}  # those that grew last are at the end

    @property
    def states(self) -> Iterator[S]:
        """Yield what is kept of each file."""
        return (file.state for file in self._files.values())

    def renew(self, state: Callable[[], S]) -> None:
        """Another reader goes on from here."""
        self._state = state
        for file in self._files.values():
            file.state = state()

    def look(self, t: float, *, to_the_end: bool = False) -> Iterator[tuple[S, list[Line]]]:
        """Yield the lines that ended since the last time, file by file; with the last ones, though nothing ends them,
        where nothing more will come."""
        for identity, path, size in present(self.path, self.many):
            known = self._files.get(identity)
            if known is None or (known.number < 0 and size != known.place):
                self._open(identity, path)
        for identity, file in list(self._files.items()):
            if file.number < 0:
                continue
            for data in file.read():
                self._files[identity] = self._files.pop(identity)
                yield file.state, file.lines.feed(data, t)
            if to_the_end:
                yield file.state, file.lines.end()
        if len(self._files) > _MOST_OPEN:
            for file in list(self._files.values())[:-_MOST_OPEN]:
                file.close()

    def close(self) -> None:
        """They are followed no more."""
        for file in self._files.values():
            file.close()

    def _open(self, identity: Identity, path: str) -> None:
        """A file is new: read it from its beginning, unless it is a copy of the one that it takes the place of."""
        try:
            file = _Open(path, self._before.get(identity, 0), self._state())
        except OSError:
            return  # it is not there any more, or not to be read: the next look tells
        for other, older in list(self._files.items()):
            if other == identity or (not self.many and older.number >= 0 and older.goes_on_in(file)):
                if other != identity or older.goes_on_in(file):
                    file.take_over(older)
                older.close()
                del self._files[other]
        self._files[identity] = file


def present(path: str, many: bool) -> Iterator[tuple[Identity, str, int]]:
    """Yield the regular files that a path names now, and their sizes."""
    for name in sorted(glob.iglob(path, recursive=True)) if many else [path]:
        try:
            found = os.stat(name)
        except (OSError, ValueError):
            continue
        if stat.S_ISREG(found.st_mode):
            yield (found.st_dev, found.st_ino), name, found.st_size
