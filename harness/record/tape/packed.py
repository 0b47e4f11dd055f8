"""A run's events in little memory: many of one kind are packed, and each is made again whenever somebody looks at it. A
long run has millions of them."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Hashable, Iterator, Sequence
from itertools import pairwise
from typing import Any, TypeVar, overload

import numpy as np

from diloco_chaos.harness.record.tape.columns import Column, Fields, packed
from diloco_chaos.harness.record.tape.event import Event

_TOGETHER = 1 << 10
"""So many events in a row are packed together, each kind for itself; two bytes tell a place among them."""
_LEAST = 16
"""Fewer of a kind are kept as they are: a column has a size of its own."""

_Key = TypeVar("_Key", bound=Hashable)


class _Block:
    """Events of one kind: from one process, of one name, with the same fields."""

    __slots__ = ("_columns", "event", "incarnation", "node", "number", "records")

    def __init__(self, number: int, node: str, incarnation: int, event: str) -> None:
        self.number, self.node, self.incarnation, self.event = number, node, incarnation, event
        self.records: list[dict[str, Any]] = []
        """The fields of each, until they are packed."""
        self._columns: dict[str, Column] | None = None

    def pack(self) -> None:
        """There are no more."""
        if len(self.records) >= _LEAST:
            self._columns, self.records = packed(self.records), []

    def at(self, t: float, row: int) -> Event:
        """The event in a row, which was at this time."""
        return Event(t, self.node, self.incarnation, self.event,
                     self.records[row] if self._columns is None else Fields(self._columns, row))

    def field(self, name: str, missing: Any) -> Callable[[int], Any]:
        """Tells this field of the event in a row."""
        if self._columns is None:
            return lambda row: self.records[row].get(name, missing)
        return self._columns[name].__getitem__ if name in self._columns else lambda row: missing


class PackedEvents(Sequence[Event]):
    """Events that can be read and not changed. Whoever asks twice for one gets two that are equal."""

    def __init__(self, blocks: Sequence[_Block], times: array[float], which: array[int], rows: array[int]) -> None:
        """When each event was, which of the blocks it is in, and in which of its rows."""
        self._blocks, self._times, self._which, self._rows = blocks, times, which, rows

    def __len__(self) -> int:
        return len(self._times)

    @overload
    def __getitem__(self, place: int) -> Event: ...
    @overload
    def __getitem__(self, place: slice) -> PackedEvents: ...
    def __getitem__(self, place: int | slice) -> Event | PackedEvents:
        if isinstance(place, slice):
            return PackedEvents(self._blocks, self._times[place], self._which[place], self._rows[place])
        return self._blocks[self._which[place]].at(self._times[place], self._rows[place])

    def __iter__(self) -> Iterator[Event]:
        blocks = self._blocks
        return (blocks[which].at(t, row)
                for t, which, row in zip(self._times, self._which, self._rows, strict=True))

    def times(self) -> list[float]:
        """When each of them was."""
        return self._times.tolist()

    def values(self, name: str, missing: Any = None) -> list[Any]:
        """A field of each of them."""
        fields = {which: self._blocks[which].field(name, missing) for which in set(self._which)}
        return [fields[which](row) for which, row in zip(self._which, self._rows, strict=True)]

    def at(self, places: Sequence[int]) -> PackedEvents:
        """Those at these places."""
        here = np.asarray(places, np.uint32)
        times, which, rows = (np.asarray(of)[here].tobytes() for of in (self._times, self._which, self._rows))
        return PackedEvents(self._blocks, array("d", times), array("I", which), array("H", rows))

    def places(self) -> dict[str, array[int]]:
        """Where the events of each name are."""
        return self._grouped(lambda block: block.event)

    def by_process(self) -> dict[tuple[str, int], PackedEvents]:
        """The events of each (node, incarnation), by their first ones."""
        return {process: self.at(places) for process, places
                in self._grouped(lambda block: (block.node, block.incarnation)).items()}

    def _grouped(self, key: Callable[[_Block], _Key]) -> dict[_Key, array[int]]:
        """The places of events with the same key, by their first ones."""
        numbers: dict[_Key, int] = {}
        of_blocks = np.array([numbers.setdefault(key(block), len(numbers)) for block in self._blocks], np.uint32)
        mine = of_blocks[np.asarray(self._which)]
        places = np.argsort(mine, kind="stable").astype(np.uint32)
        borders = np.searchsorted(mine[places], np.arange(len(numbers) + 1))
        found = [(array("I", places[begin:end].tobytes()), name)
                 for name, (begin, end) in zip(numbers, pairwise(borders), strict=True) if begin < end]
        return {name: here for here, name in sorted(found, key=lambda one: one[0][0])}


class Packing:
    """Takes events in, and packs them in the order of time; of two at the same time the one that came first."""

    def __init__(self, check: Callable[[str, dict[str, Any]], None]) -> None:
        """`check(event, fields)` is asked of the first of each kind, and may raise."""
        self._check = check
        self._blocks: list[_Block] = []
        self._open: dict[tuple[Any, ...], _Block] = {}
        self._times, self._which, self._rows = array("d"), array("I"), array("H")

    def add(self, t: float, node: str, incarnation: int, event: str, fields: dict[str, Any]) -> None:
        """One more.

        Raises:
            Exception: what `check` raises; then it is not taken in.
        """
        kind = node, incarnation, type(incarnation), event, *fields  # True is not 1
        block = self._open.get(kind) or self._begin(kind, fields)
        self._times.append(t)
        self._which.append(block.number)
        self._rows.append(len(block.records))
        block.records.append(fields)
        if len(self._times) % _TOGETHER == 0:
            self._pack()

    def _begin(self, kind: tuple[Any, ...], fields: dict[str, Any]) -> _Block:
        node, incarnation, _, event, *_ = kind
        self._check(event, fields)
        block = self._open[kind] = _Block(len(self._blocks), node, incarnation, event)
        self._blocks.append(block)
        return block

    def _pack(self) -> None:
        for block in self._open.values():
            block.pack()
        self._open.clear()

    def done(self) -> PackedEvents:
        """All of them."""
        self._pack()
        order = np.argsort(np.asarray(self._times), kind="stable").astype(np.uint32)
        return PackedEvents(self._blocks, self._times, self._which, self._rows).at(array("I", order.tobytes()))


def times(events: Sequence[Event]) -> list[float]:
    """When each of them was."""
    return events.times() if isinstance(events, PackedEvents) else [event.t for event in events]


def values(events: Sequence[Event], name: str, missing: Any = None) -> list[Any]:
    """A field of each of them; `missing` where it has none of this name."""
    if isinstance(events, PackedEvents):
        return events.values(name, missing)
    return [event.fields.get(name, missing) for event in events]
