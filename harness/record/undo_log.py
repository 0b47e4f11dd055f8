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
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from diloco_chaos.harness.base.errors import UserError, first
from diloco_chaos.harness.base.processes import Identity


class UndoLogError(UserError):
    """A file that is not an undo log, or that can't be written; the message says which and what to do."""


def run_label(token: str) -> str:
    """What a run is labelled with: a part of its token, because labels are no secret."""
    return token[:12]


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Opened(_Entry):
    """The first line: whose undo log this is."""

    entry: Literal["opened"] = "opened"
    version: Literal[1] = 1
    token: str = Field(pattern=r"^[0-9a-f]{16,64}$")
    pid: int = Field(ge=1)


class _Undo(_Entry):
    number: int = Field(ge=1)
    cause: str = ""
    """The fault that it belongs to."""


_LOCAL = r"^(http://)?(127\.0\.0\.1|localhost|\[::1\]):\d{1,5}$"


class _OfProcess(_Undo):
    process: Identity


class _OfLink(_Undo):
    api: str = Field(pattern=_LOCAL)
    server: Identity | None = None
    """The process that serves the API, where it is ours: another one may get its port once it is gone."""
    link: str


class Continue(_OfProcess):
    """Let a stopped process run again."""

    entry: Literal["continue"] = "continue"

    def describe(self) -> str:
        """For people."""
        return f"process {self.process.pid} let run again"


class Lift(_OfProcess):
    """Give a process back its limit of file sizes (RLIMIT_FSIZE, soft and hard)."""

    entry: Literal["lift"] = "lift"
    soft: int
    hard: int

    def describe(self) -> str:
        """For people."""
        return f"file size limit of process {self.process.pid} lifted"


class Toxin(_OfLink):
    """Take a toxic off a link."""

    entry: Literal["toxic"] = "toxic"
    name: str

    def describe(self) -> str:
        """For people."""
        return f"toxic {self.name} taken off {self.link}"


class Enable(_OfLink):
    """Let a link listen again."""

    entry: Literal["enable"] = "enable"

    def describe(self) -> str:
        """For people."""
        return f"link {self.link} let through again"


class Remove(_Undo):
    """Remove temporary files: a file or folder whose name has the token in it, or it is left alone."""

    entry: Literal["remove"] = "remove"
    path: Path

    def describe(self) -> str:
        """For people."""
        return f"{self.path} removed"


class Containers(_Undo):
    """Remove every container, network and volume that is labelled with the run, and nothing else."""

    entry: Literal["containers"] = "containers"
    engine: str = Field(pattern=r"^unix://")
    run: str = Field(pattern=r"^[0-9a-f]{12}$")

    def describe(self) -> str:
        """For people."""
        return f"containers, networks and volumes of {self.run} removed"


class Namespace(_Undo):
    """Remove everything in a namespace of a Kubernetes that is labelled with the run, and the namespace if it is."""

    entry: Literal["namespace"] = "namespace"
    context: str
    namespace: str
    run: str = Field(pattern=r"^[0-9a-f]{12}$")

    def describe(self) -> str:
        """For people."""
        return f"everything of {self.run} in namespace {self.namespace} of {self.context} removed"


class SlurmJobs(_Undo):
    """Cancel every job of Slurm's that carries the run's name, and nothing else."""

    entry: Literal["slurm_jobs"] = "slurm_jobs"
    config: str
    """The file that SLURM_CONF named; empty: none."""
    run: str = Field(pattern=r"^[0-9a-f]{12}$")

    def describe(self) -> str:
        """For people."""
        return f"jobs of {self.run} cancelled"


class Command(_Undo):
    """Run what the user gave to undo something that only the user can do."""

    entry: Literal["command"] = "command"
    argv: list[str] = Field(min_length=1)

    def describe(self) -> str:
        """For people."""
        return f"{' '.join(self.argv)}: done"


class Done(_Entry):
    """An undo that is no longer owed."""

    entry: Literal["done"] = "done"
    number: int


AnyUndo = Continue | Lift | Toxin | Enable | Remove | Containers | Namespace | SlurmJobs | Command
_ADAPTER: TypeAdapter[Opened | AnyUndo | Done] = TypeAdapter(
    Annotated[Opened | AnyUndo | Done, Field(discriminator="entry")])


def state_folder() -> Path:
    """What is kept of this user's runs (XDG_STATE_HOME; a path that is not absolute is ignored, as its specification
    wants it: it would be another folder in every folder)."""
    named = Path(os.environ.get("XDG_STATE_HOME", ""))
    return (named if named.is_absolute() else Path("~/.local/state").expanduser()) / "diloco-chaos"


def undo_logs_folder() -> Path:
    """Where undo logs lie."""
    return state_folder() / "undo-logs"


class UndoLog:
    """A undo log that this process is in charge of.

    Failure semantics: `owe` returns only once the line is on the disk; a crash at any moment leaves an undo that was
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

    def record(self, undo: type[AnyUndo], **fields: object) -> int:
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
        """Nothing is owed any more, or what is owed is for the reaper: an empty undo log is removed."""
        if not self._open:
            self.path.unlink(missing_ok=True)
        os.close(self._file)

    def _write(self, entry: Opened | AnyUndo | Done) -> None:
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
    """For what ends with this process in any case: nothing is written."""

    def __init__(self, token: str) -> None:
        """`token`: see `UndoLog`."""
        self.token, self.cause = token, ""

    def record(self, undo: type[AnyUndo], **fields: object) -> int:
        """Nothing."""
        return 0

    def complete(self, number: int) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


def _made(path: Path) -> int:
    """A new file that this process has locked, as a descriptor."""
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
        fcntl.flock(file, fcntl.LOCK_EX)
        if os.fstat(file).st_nlink:
            return file
        os.close(file)  # somebody who cleaned up was quicker with the lock, and removed what was empty


class Owed(NamedTuple):
    """What an undo log says: whose it is, and what is still to be undone, newest first."""

    opened: Opened
    undos: list[AnyUndo]


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
            entries.append(_ADAPTER.validate_python(json.loads(line)))
        except (ValueError, ValidationError, RecursionError) as error:
            raise UndoLogError(f"{path}:{number}: not a line of an undo log ({first(error)}); look at it, then remove "
                               f"the file") from error
    opened, *rest = entries
    if not isinstance(opened, Opened):
        raise UndoLogError(f"{path}:1: an undo log begins with whose it is; look at it, then remove the file")
    undone = {entry.number for entry in rest if isinstance(entry, Done)}
    undos = [entry for entry in rest if not isinstance(entry, (Opened, Done)) and entry.number not in undone]
    return Owed(opened, undos[::-1])


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
