"""What went into many merges, in columns: a long run merges from hundreds of thousands of workers' answers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from operator import attrgetter
from typing import overload

from diloco_chaos.harness.record.tape.events import Merge, MergedPart
from diloco_chaos.harness.record.tape.series import Column, column_of, plain, together

_FIELDS = MergedPart.__struct_fields__


class PartTable:
    """The parts of the merges of one tape. It is filled while the tape is read, and then made whole."""

    def __init__(self) -> None:
        self._pieces: dict[str, list[Column]] = {name: [] for name in _FIELDS}
        self.columns: dict[str, Column] = {}
        self._size = 0

    def take_over(self, merges: Iterable[Merge]) -> None:
        """Keep these merges' contributions here; the merges show them as before."""
        taken = list(merges)
        parts = list(chain.from_iterable(merge.contributions for merge in taken))
        if not parts:
            return
        for name in _FIELDS:
            self._pieces[name].append(column_of(list(map(attrgetter(name), parts))))
        for merge in taken:
            end = self._size + len(merge.contributions)
            merge.contributions = Parts(self, self._size, end)
            self._size = end

    def done(self) -> None:
        """There are no more."""
        self.columns = {name: together(pieces) for name, pieces in self._pieces.items()} if self._size else {}
        self._pieces.clear()


class Parts(Sequence[MergedPart]):
    """The parts of one merge; each is made again whenever it is asked for."""

    __slots__ = ("begin", "end", "table")

    def __init__(self, table: PartTable, begin: int, end: int) -> None:
        self.table, self.begin, self.end = table, begin, end

    def __len__(self) -> int:
        return self.end - self.begin

    def __iter__(self) -> Iterator[MergedPart]:
        columns = [plain(column[self.begin:self.end]) for column in self.table.columns.values()]
        return (MergedPart(**dict(zip(_FIELDS, row, strict=True))) for row in zip(*columns, strict=True))

    @overload
    def __getitem__(self, place: int) -> MergedPart: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[MergedPart]: ...
    def __getitem__(self, place: int | slice) -> MergedPart | Sequence[MergedPart]:
        return list(self)[place]

    def __eq__(self, other: object) -> bool:
        return list(self) == list(other) if isinstance(other, Sequence) else NotImplemented

    def __hash__(self) -> int:
        raise TypeError("parts can be equal to a list, and have no hash")
