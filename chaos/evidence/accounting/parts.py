"""What workers gave to merges, in columns: checks of a long run go through hundreds of thousands of such parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

from diloco_chaos.harness.base.tensors import Numbers, np
from diloco_chaos.harness.record.tape.parts import Parts, PartTable
from diloco_chaos.harness.record.tape.reading import Process
from diloco_chaos.harness.record.tape.recovered import Made, Part
from diloco_chaos.harness.record.tape.series import Column, column_of, numbered, plain

if TYPE_CHECKING:  # see harness/base/tensors.py
    from numpy.typing import NDArray

Integers: TypeAlias = "NDArray[np.int64]"


@dataclass(frozen=True)
class PartColumns:
    """The parts of some merges, one row each, in the order of the merges."""

    merges: Sequence[Made]
    counts: Integers
    """How many parts each merge has."""

    @cached_property
    def merge(self) -> Integers:
        """Return the number of the merge that each row belongs to."""
        return np.repeat(np.arange(len(self.merges)), self.counts)

    @cached_property
    def begins(self) -> Integers:
        """The row at which the parts of each merge begin."""
        return np.cumsum(self.counts) - self.counts

    def part(self, row: int) -> Part:
        """The part of this row."""
        merge = int(self.merge[row])
        return self.merges[merge].contributions[row - int(self.begins[merge])]

    @property
    def learners(self) -> tuple[list[str], Integers]:
        """The learners that have a part, and which of them each row is of."""
        return numbered(self.column("learner"))

    @cached_property
    def processes(self) -> tuple[list[Process], Integers]:
        """The processes that have a part, and which of them each row is of."""
        names, learner = self.learners
        incarnations, incarnation = numbered(self.column("incarnation"))
        pairs, rows = numbered(learner * len(incarnations) + incarnation)
        return [(names[pair // len(incarnations)], incarnations[pair % len(incarnations)]) for pair in pairs], rows

    def of_merge(self, name: str) -> Column:
        """A field of the merge that each row belongs to."""
        values = column_of([getattr(merge, name) for merge in self.merges]) if self.merges else np.zeros(0)
        return [values[place] for place in self.merge] if isinstance(values, list) else values[self.merge]

    def integers(self, name: str) -> Integers:
        """A field of each row that is a whole number."""
        return np.asarray(self.column(name), np.int64)

    def numbers(self, name: str) -> Numbers:
        """A field of each row that is a number."""
        return np.asarray(self.column(name), float)

    def plain(self, name: str) -> list[Any]:
        """A field of each row, as Python's own values."""
        return plain(self.column(name))

    def column(self, name: str) -> Column:
        """A field of each row."""
        if (table := self._table) is not None:
            column = table.columns.get(name, [])
            return [column[place] for place in self._rows] if isinstance(column, list) else column[self._rows]
        return column_of([getattr(part, name) for merge in self.merges for part in merge.contributions])

    @cached_property
    def _table(self) -> PartTable | None:
        """Return the table that holds all of these parts in columns already; None: there is none."""
        tables = {id(merge.contributions.table): merge.contributions.table for merge in self.merges
                  if isinstance(merge.contributions, Parts)}
        if len(tables) != 1 or not all(isinstance(merge.contributions, Parts) for merge in self.merges):
            return None
        return next(iter(tables.values()))

    @cached_property
    def _rows(self) -> Integers:
        """Return the number that each row has in that table."""
        begins = [merge.contributions.begin for merge in self.merges if isinstance(merge.contributions, Parts)]
        offsets = np.arange(len(self.merge)) - np.repeat(self.begins, self.counts)
        return np.repeat(np.asarray(begins, np.int64), self.counts) + offsets


def parts_of(merges: Sequence[Made]) -> PartColumns:
    """The parts of these merges."""
    return PartColumns(merges, np.asarray([len(merge.contributions) for merge in merges], np.int64))

