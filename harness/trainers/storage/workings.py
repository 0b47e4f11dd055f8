"""What nodes computed with, kept in a bounded file each, so that somebody else can compute it again.

A file is a row of records, each its length (4 bytes, big endian) and a safetensors file with digests of its own. One
that is killed while it writes leaves a torn last record, which is nobody's evidence.
"""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from diloco_chaos.harness.base.errors import all_printable, printable
from diloco_chaos.harness.base.tensors import Tensors, add_prefix, strip_prefix
from diloco_chaos.harness.record.storage.disk import CheckpointError, Content
from diloco_chaos.harness.trainers.core.effects import Working
from diloco_chaos.harness.trainers.core.roles import COORDINATOR

Amount = Literal["full", "sampled", "off"]
"""How much of it is kept."""
AMOUNTS: tuple[Amount, ...] = get_args(Amount)
WORKINGS = "workings"
"""The folder of these files, in the run's."""
_LENGTH = 4
_SAMPLED, _FULL = 64 << 20, 16 << 30
"""Bytes of a whole run: half of them are for whoever merges, and half for the others together."""
_LONGEST = 1 << 30
_HEADER = 600
"""About the bytes of a record without its tensors."""
_FIRST = 1 / 8
"""Share of a process' room that its first records fill."""


def room(amount: Amount, node: str, nodes: int) -> int:
    """Bytes that a node may write in a run of so many nodes."""
    total = {"full": _FULL, "sampled": _SAMPLED, "off": 0}[amount]
    return total // 2 if node == COORDINATOR else total // 2 // max(1, nodes - 1)


class Workings:
    """The workings that one process keeps. It takes at most half of the room that the node's processes before it have
    left. The first records fill an eighth of its own; after those it keeps the n-th with a chance that falls as 1/n, so
    that a run a thousand times as long as these has some of all of it."""

    def __init__(self, folder: Path, node: str, incarnation: int, amount: Amount, nodes: int) -> None:
        """`nodes`: of the run."""
        self._file = folder / f"{node}.{incarnation}.bin"
        with suppress(OSError):
            folder.mkdir(exist_ok=True)
        used = sum(file.stat().st_size for file in folder.glob(f"{node}.*.bin"))
        self._every, self._seen = amount == "full", 0
        self._room = self._left = max(0, room(amount, node, nodes) - used) // (1 if self._every else 2)

    def keep(self, working: Working) -> None:
        """Write it, if it is one of those that are kept. A file that can't be written costs this evidence alone."""
        self._seen += 1
        size = _size(working)
        if size > self._left or not (self._every or self._chance() * self._seen * size < self._room * _FIRST):
            return
        tensors = {name: array for part, its in working.parts.items()
                   for name, array in add_prefix(f"{part}/", its).items()}
        data = Content(tensors, {"of": working.of, "fields": working.fields, "parts": list(working.parts)}).encoded()
        try:
            with open(self._file, "ab") as file:
                file.write(len(data).to_bytes(_LENGTH, "big") + data)
        except OSError:
            self._left = 0
            return
        self._left = max(0, self._left - len(data) - _LENGTH)

    def _chance(self) -> float:
        """Return a number from 0 to 1, the same every time."""
        return zlib.crc32(f"{self._file.name}/{self._seen}".encode()) / (1 << 32)


@dataclass(frozen=True)
class Kept(ABC):
    """A record of what a node computed with."""

    node: str
    incarnation: int
    of: str
    """What was computed: the event's name."""
    fields: dict[str, Any]
    """What tells it from others of the kind."""

    @property
    @abstractmethod
    def parts(self) -> dict[str, Tensors]:
        """Tensors by their role."""


@dataclass(frozen=True)
class InFile(Kept):
    """The tensors stay in the file until they are asked for."""

    file: Path
    place: int
    length: int

    @property
    def parts(self) -> dict[str, Tensors]:
        """Tensors by their role, read anew each time."""
        with open(self.file, "rb") as file:
            file.seek(self.place)
            content = Content.decoded(file.read(self.length), self.file.name)
        return {str(part): strip_prefix(f"{part}/", content.tensors) for part in content.meta["parts"]}


@dataclass(frozen=True)
class InFolder:
    """The records of a run that are whole, each node's in order; a file ends at the first that is not. The folder may
    come from anybody."""

    folder: Path

    def __iter__(self) -> Iterator[Kept]:
        for path in sorted(self.folder.glob("*.bin")):
            node, _, incarnation = path.stem.rpartition(".")
            if path.is_file() and incarnation.isdecimal():
                for place, length, meta in _records(path):
                    fields, parts = meta.get("fields"), meta.get("parts")
                    if isinstance(fields, dict) and isinstance(parts, list):
                        yield InFile(printable(node), int(incarnation), printable(str(meta.get("of"))),
                                     all_printable(fields), path, place, length)


@dataclass(frozen=True)
class Remembered(Kept):
    """All of it is here."""

    tensors: dict[str, Tensors]

    @property
    def parts(self) -> dict[str, Tensors]:
        """Return the tensors as they were."""
        return self.tensors


class InMemory:
    """The workings that nodes keep of a run that leaves no folder: all of it, while there is room."""

    def __init__(self) -> None:
        self._records: list[Remembered] = []
        self._left = _SAMPLED

    def __iter__(self) -> Iterator[Kept]:
        return iter(self._records)

    def keep(self, node: str, incarnation: int, working: Working) -> None:
        """Remember it as it is now: arrays may be computed with further, in their place."""
        self._left -= _size(working)
        if self._left >= 0:
            parts = {part: {name: array.copy() for name, array in its.items()} for part, its in working.parts.items()}
            self._records.append(Remembered(node, incarnation, working.of, dict(working.fields), parts))


def _size(working: Working) -> int:
    """About the bytes of its record."""
    return _HEADER + sum(array.nbytes for its in working.parts.values() for array in its.values())


def _records(path: Path) -> Iterator[tuple[int, int, dict[str, Any]]]:
    """Yield where each record begins, how long it is, and what it says of itself."""
    with open(path, "rb") as file, suppress(CheckpointError):
        while len(head := file.read(_LENGTH)) == _LENGTH:
            place, length = file.tell(), int.from_bytes(head, "big")
            data = file.read(length) if length <= _LONGEST else b""
            if len(data) < length or not data:
                return
            yield place, length, Content.decoded(data, path.name).meta
