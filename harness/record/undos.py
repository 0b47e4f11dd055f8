"""Kinds of undo: what an undo log holds, one line each, and how each is carried out once the harness is dead.

Those that need nothing but the kernel are here. A place brings those of what its runs leave there
(`diloco_chaos.harness.places.place.Place.undos`). A line's `entry` names its kind, and keeps its word: there are old
undo logs.
"""

from __future__ import annotations

import os
import resource
import shutil
import signal
from abc import ABC, abstractmethod
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from diloco_chaos.harness.base.processes import Identity, handle, send
from diloco_chaos.harness.base.registries import ProviderError, offers
from diloco_chaos.harness.record.user_commands import carried_out

_PLACES = "diloco_chaos.backends"
"""Entry points whose content may have kinds of its own."""
_COMMAND_S = 60.0


class Entry(BaseModel):
    """A line of an undo log."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    entry: str
    """What it is; the model of a kind has its word as the default."""


class Undo(Entry, ABC):
    """Something that is to be undone. A kind says in `entry` by which word its lines are known."""

    last: ClassVar[bool] = False
    """Whether it waits until the run's processes were ended: then they write nothing any more."""

    number: int = Field(ge=1)
    cause: str = ""
    """The fault that it belongs to."""

    @abstractmethod
    def describe(self) -> str:
        """Say for people what was done once it is undone."""

    @abstractmethod
    def heal(self, token: str) -> bool:
        """Undo it, for a harness that is dead; False where nothing was (left) to be undone.

        Args:
            token: the run's; nothing is touched that does not carry it.

        Raises:
            OSError: it could not be undone; it stays owed.
        """


class Continue(Undo):
    """Let a stopped process run again."""

    entry: Literal["continue"] = "continue"
    process: Identity

    def describe(self) -> str:
        """Say for people what was done."""
        return f"process {self.process.pid} let run again"

    def heal(self, token: str) -> bool:
        """SIGCONT."""
        return send(self.process, token, signal.SIGCONT)


class Lift(Undo):
    """Give a process back its limit of file sizes (RLIMIT_FSIZE, soft and hard)."""

    entry: Literal["lift"] = "lift"
    process: Identity
    soft: int
    hard: int

    def describe(self) -> str:
        """Say for people what was done."""
        return f"file size limit of process {self.process.pid} lifted"

    def heal(self, token: str) -> bool:
        """Set it from outside."""
        with handle(self.process, token) as descriptor:
            if descriptor is not None:
                resource.prlimit(self.process.pid, resource.RLIMIT_FSIZE, (self.soft, self.hard))
            return descriptor is not None


class Remove(Undo):
    """Remove temporary files: a file or folder whose name has the token in it, or it is left alone."""

    last: ClassVar[bool] = True

    entry: Literal["remove"] = "remove"
    path: Path

    def describe(self) -> str:
        """Say for people what was done."""
        return f"{self.path} removed"

    def heal(self, token: str) -> bool:
        """A link is removed, and not what it leads to."""
        if token not in self.path.name or not os.path.lexists(self.path):
            return False
        shutil.rmtree(self.path) if self.path.is_dir() and not self.path.is_symlink() else self.path.unlink()
        return True


class Command(Undo):
    """Run what the user gave to undo something that only the user can do."""

    entry: Literal["command"] = "command"
    argv: list[str] = Field(min_length=1)

    def describe(self) -> str:
        """Say for people what was done."""
        return f"{' '.join(self.argv)}: done"

    def heal(self, token: str) -> bool:
        """Run the user's command, to its end."""
        carried_out(self.argv, _COMMAND_S)
        return True


OWN: tuple[type[Undo], ...] = (Continue, Lift, Remove, Command)


class UnknownKindError(LookupError):
    """No package that is installed, and can be loaded, knows this kind of undo."""


def kind_of(entry: str) -> type[Undo]:
    """The kind that a line's `entry` names. Places are imported where it is none of ours; one that can't be hinders no
    other.

    Raises:
        UnknownKindError: there is none.
    """
    wrong: list[str] = []
    for kind in chain(OWN, _of_places(wrong)):
        if word_of(kind) == entry:
            return kind
    raise UnknownKindError("; ".join([f"no installed place undoes {entry!r}: install the package that wrote it",
                                      *wrong]))


def word_of(kind: type[Undo]) -> str:
    """Return what `entry` says in the lines of a kind."""
    return str(kind.model_fields["entry"].default)


def _of_places(wrong: list[str]) -> Iterator[type[Undo]]:
    """Yield the kinds of undo of every place. `wrong` receives a sentence for each place that can't be asked."""
    try:
        offered = offers(_PLACES)
    except ProviderError as error:
        wrong.append(str(error))
        return
    wrong += map(str, offered.broken)
    for place in offered.provided:
        try:
            yield from getattr(place.content, "undos", tuple)()
        except Exception as error:  # another package's code, which may raise anything
            wrong.append(f"{place.name} of {place.provider} can't say what it undoes: {type(error).__name__}: {error}")
