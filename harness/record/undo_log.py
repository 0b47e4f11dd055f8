"""The undo log: what must be undone, written down and fsynced *before* it is done.

One file per harness, in `undo_logs_folder()`, gone once nothing is owed any more. Whoever holds its lock (flock) is in
charge of it: the harness while it lives, then its reaper, then `diloco-chaos clean` or the next start. The kernel
releases the lock of a process that dies, whatever it died of.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import Field, ValidationError

from diloco_chaos.harness.base.errors import UserError, first
from diloco_chaos.harness.record.undos import Entry, Undo, UnknownKindError, kind_of


class UndoLogError(UserError):
    """A file that is not an undo log, or that can't be written; the message says which and what to do."""


def run_label(token: str) -> str:
    """Return the label of a run: a part of its token, because labels are no secret."""
    return token[:12]


class Opened(Entry):
    """The first line: whose undo log this is."""

    entry: Literal["opened"] = "opened"
    version: Literal[1] = 1
    token: str = Field(pattern=r"^[0-9a-f]{16,64}$")
    pid: int = Field(ge=1)


class Done(Entry):
    """An undo that is no longer owed."""

    entry: Literal["done"] = "done"
    number: int


_OURS: Mapping[str, type[Entry]] = {"opened": Opened, "done": Done}


def state_folder() -> Path:
    """Return the folder that keeps what is left of this user's runs (XDG_STATE_HOME; a path that is not absolute is
    ignored, as its specification wants it: it would be another folder in every folder)."""
    named = Path(os.environ.get("XDG_STATE_HOME", ""))
    return (named if named.is_absolute() else Path("~/.local/state").expanduser()) / "diloco-chaos"


def undo_logs_folder() -> Path:
    """Return the folder that undo logs lie in."""
    return state_folder() / "undo-logs"


class UndoLog:
    """A undo log that this process is in charge of.

    Failure semantics: `record` returns only once the line is on the disk; a crash at any moment leaves an undo that was
    never needed rather than one that nobody knows of.
    """

    def __init__(self, path: Path, token: str) -> None:
        """Make a new one.

        Raises:
            UndoLogError: it can't be made there.
        """
        self.path, self.token, self.cause = path, token, ""
        self._count = 0
        self._open: set[int] = set()
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._file = _made(path)
            self._write(Opened(token=token, pid=os.getpid()))
        except OSError as error:
            raise UndoLogError(f"{path}: the undo log can't be written ({error.strerror}); free some space, or name a "
                               f"writable place in XDG_STATE_HOME") from error

    def record(self, undo: type[Undo], **fields: object) -> int:
        """Write down an undo before the deed; returns its number."""
        self._count += 1
        self._write(undo.model_validate({"number": self._count, "cause": self.cause, **fields}))
        self._open.add(self._count)
        return self._count

    def complete(self, number: int) -> None:
        """It was undone."""
        if number in self._open:
            self._open.discard(number)
            with suppress(OSError):  # no space left, say: an undo too many is harmless
                self._write(Done(number=number))

    def close(self) -> None:
        """Close it: nothing is owed any more, or what is owed is for the reaper. An empty undo log is removed."""
        if not self._open:
            self.path.unlink(missing_ok=True)
        os.close(self._file)

    def _write(self, entry: Entry) -> None:
        line = entry.model_dump_json().encode() + b"\n"
        before = os.fstat(self._file).st_size
        try:
            if os.write(self._file, line) != len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))
        except OSError:
            os.ftruncate(self._file, before)  # half a line would make the next one unreadable, too
            raise
        os.fsync(self._file)


class NoUndoLog(UndoLog):
    """An undo log for what ends with this process in any case: nothing is written."""

    def __init__(self, token: str) -> None:
        """`token`: see `UndoLog`."""
        self.token, self.cause = token, ""

    def record(self, undo: type[Undo], **fields: object) -> int:
        """Record nothing; return 0."""
        return 0

    def complete(self, number: int) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


class OpenUndos:
    """One part of a run's undos in the undo log, by what was done: each is there once, however often it is done."""

    def __init__(self, undo_log: UndoLog) -> None:
        self._undo_log = undo_log
        self._numbers: dict[Hashable, int] = {}

    def record(self, done: Hashable, undo: type[Undo], **fields: object) -> None:
        """Write down what undoes this, before it is done; nothing where it is there already."""
        if done not in self._numbers:
            self._numbers[done] = self._undo_log.record(undo, **fields)

    def complete(self, done: Hashable) -> None:
        """It was undone; harmless where it was never done."""
        if done in self._numbers:
            self._undo_log.complete(self._numbers.pop(done))

    def complete_all(self) -> None:
        """Mark all of it as undone, or gone."""
        for done in list(self._numbers):
            self.complete(done)

    def __contains__(self, done: Hashable) -> bool:
        return done in self._numbers


def _made(path: Path) -> int:
    """A new file that this process has locked, as a descriptor."""
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
        fcntl.flock(file, fcntl.LOCK_EX)
        if os.fstat(file).st_nlink:
            return file
        os.close(file)  # somebody who cleaned up was quicker with the lock, and removed what was empty


class Owed(NamedTuple):
    """An undo log's content: whose it is, and what is still to be undone, newest first."""

    opened: Opened
    undos: list[Undo]


def read(path: Path) -> Owed | None:
    """A undo log's content; None where its first line was never finished, so that nothing can have been done.

    A torn last line is normal: the deed after it was never done.

    Raises:
        UndoLogError: it is not an undo log.
    """
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise UndoLogError(f"{path}: can't be read: {error.strerror}") from error
    whole = lines[:-1]
    if not whole:
        return None
    entries = []
    for number, line in enumerate(whole, 1):
        try:
            entries.append(_entry(json.loads(line)))
        except UnknownKindError as error:
            raise UndoLogError(f"{path}:{number}: not a line of an undo log that is known here: {error}") from error
        except (ValueError, ValidationError, RecursionError) as error:
            raise UndoLogError(f"{path}:{number}: not a line of an undo log ({first(error)}); look at it, then remove "
                               f"the file") from error
    opened, *rest = entries
    if not isinstance(opened, Opened):
        raise UndoLogError(f"{path}:1: an undo log begins with whose it is; look at it, then remove the file")
    undone = {entry.number for entry in rest if isinstance(entry, Done)}
    undos = [entry for entry in rest if isinstance(entry, Undo) and entry.number not in undone]
    return Owed(opened, undos[::-1])


def _entry(line: Any) -> Entry:
    """A line, as what it says that it is.

    Raises:
        ValueError: it is none.
        UnknownKindError: nobody here knows what it is.
    """
    word = line.get("entry") if isinstance(line, dict) else None
    if not isinstance(word, str):
        raise ValueError("it does not say what it is")
    return (_OURS.get(word) or kind_of(word)).model_validate(line)


@contextmanager
def in_charge(path: Path) -> Iterator[bool]:
    """Take an undo log's lock: whether this process is in charge of it now.

    Raises:
        OSError: it can't be opened.
    """
    try:
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        yield False
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield path.exists()
    except BlockingIOError:
        yield False
    finally:
        os.close(file)
