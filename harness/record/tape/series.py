"""Many events of one kind from one process, in columns: a long run has millions of them, and checks want their numbers.

A column is a numpy array where all values are of one simple type, and a list elsewhere. What comes out is equal to what
went in.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar, overload

from diloco_chaos.harness.base.tensors import Numbers, np
from diloco_chaos.harness.record.tape.events import Event

if TYPE_CHECKING:  # see harness/base/tensors.py
    from numpy.typing import NDArray

E = TypeVar("E", bound=Event)
Column: TypeAlias = "NDArray[Any] | list[Any]"
_ENVELOPE = ("node", "inc")
_LONGEST_NAME = 32
"""Characters; a digest has as many."""
_AT_ONCE = 4096
_WIDTHS = ("int8", "int16", "int32", "int64")


class Series(Sequence[E], Generic[E]):
    """Events that can be read and not changed. An item is made again whenever it is asked for."""

    def __init__(self, kind: type[E], node: str, inc: int, columns: Mapping[str, Column],
                 places: NDArray[np.int32]) -> None:
        """`columns`: of every field but `node` and `inc`, in the order of time; `t` is one of them. `places`: where
        each event stands among all of its process."""
        self.kind, self.node, self.inc, self.places = kind, node, inc, places
        self._columns = columns

    @classmethod
    def of(cls, events: Sequence[E], places: Sequence[int] | None = None) -> Series[E]:
        """The series of these events of one kind and process, one at least."""
        first = events[0]
        builder = Builder(type(first), first.node, first.inc)
        builder.add(events, range(len(events)) if places is None else places)
        return builder.done()

    @property
    def t(self) -> Numbers:
        """Return when each was, in seconds since the run began."""
        column: Numbers = np.asarray(self._columns["t"], float)
        return column

    def column(self, name: str) -> Column:
        """A field of each."""
        return self._columns[name]

    def integers(self, name: str) -> NDArray[np.int64]:
        """A field of each that is a whole number.

        Raises:
            TypeError, OverflowError: some are missing, or have more than 64 bits.
        """
        return np.asarray(self._columns[name], np.int64)

    def numbers(self, name: str) -> Numbers:
        """A field of each as a float; NaN where it is missing."""
        column = self._columns[name]
        if isinstance(column, list):
            return np.asarray([np.nan if value is None else value for value in column], float)
        return column.astype(float, copy=False)

    def plain(self, name: str) -> list[Any]:
        """A field of each, as Python's own values."""
        return plain(self._columns[name])

    def until(self, t: float) -> Series[E]:
        """Return the events that were at this time or before."""
        return self[:int(np.searchsorted(self.t, t, side="right"))]

    def where(self, mask: NDArray[np.bool_]) -> Series[E]:
        """Return the events for which the mask holds."""
        chosen = np.flatnonzero(mask)
        columns = {name: _taken(column, chosen) for name, column in self._columns.items()}
        return Series(self.kind, self.node, self.inc, columns, self.places[chosen])

    def __len__(self) -> int:
        return len(self._columns["t"])

    @overload
    def __getitem__(self, place: int) -> E: ...
    @overload
    def __getitem__(self, place: slice) -> Series[E]: ...
    def __getitem__(self, place: int | slice) -> E | Series[E]:
        if isinstance(place, slice):
            columns = {name: column[place] for name, column in self._columns.items()}
            return Series(self.kind, self.node, self.inc, columns, self.places[place])
        fields = {name: _one(column[place]) for name, column in self._columns.items()}
        return self.kind(**fields, node=self.node, inc=self.inc)

    def __iter__(self) -> Iterator[E]:
        names = list(self._columns)
        for begin in range(0, len(self), _AT_ONCE):
            columns = (plain(column[begin:begin + _AT_ONCE]) for column in self._columns.values())
            for row in zip(*columns, strict=True):
                yield self.kind(**dict(zip(names, row, strict=True)), node=self.node, inc=self.inc)


class Builder(Generic[E]):
    """Takes in events of one kind and process, and makes a series of them."""

    def __init__(self, kind: type[E], node: str, inc: int) -> None:
        self._kind, self._node, self._inc = kind, node, inc
        self._names = [name for name in kind.__struct_fields__ if name not in _ENVELOPE]
        self._parts: dict[str, list[Column]] = {name: [] for name in self._names}
        self._places: list[NDArray[np.int32]] = []

    def add(self, events: Sequence[E], places: Sequence[int] | NDArray[np.int64]) -> None:
        """Add more of them, and where each stands in its file."""
        for name in self._names:
            self._parts[name].append(column_of(list(map(attrgetter(name), events))))
        self._places.append(np.asarray(places, np.int32))

    def compact(self) -> None:
        """Keep each column in one piece: many small ones take more memory."""
        self._parts = {name: [together(parts)] for name, parts in self._parts.items()}
        self._places = [np.concatenate(self._places)]

    def done(self) -> Series[E]:
        """Return all of them in the order of time; of two at the same time the one that came first is first."""
        self.compact()
        columns, places = {name: parts[0] for name, parts in self._parts.items()}, self._places[0]
        moments = np.asarray(columns["t"])
        if (moments[1:] < moments[:-1]).any():
            order = np.argsort(moments, kind="stable")
            columns, places = {name: _taken(column, order) for name, column in columns.items()}, places[order]
        return Series(self._kind, self._node, self._inc, columns, places)


def column_of(values: list[Any]) -> Column:
    """Values of one field, as an array where they are of one simple type."""
    kinds = set(map(type, values))
    kind = kinds.pop() if len(kinds) == 1 else None
    if kind is int:
        return _whole(values)
    if kind in (float, bool):
        return np.array(values, kind)
    if kind is str:
        return _names(values)
    return values


def _names(values: list[str]) -> Column:
    """Digests, or names of nodes, as bytes of one length; anything else stays as it is."""
    widths = set(map(len, values))
    text = "".join(values)
    if max(widths) > _LONGEST_NAME or not text.isascii() or "\0" in text:
        return values
    if len(widths) == 1 and text:
        return np.frombuffer(text.encode(), f"S{len(values[0])}")
    return np.array(values, f"S{max(max(widths), 1)}")


def _whole(values: list[int]) -> Column:
    """Whole numbers, in as few bytes as they need."""
    try:
        whole = np.array(values, np.int64)
    except OverflowError:
        return values
    least, most = int(whole.min()), int(whole.max())
    return whole.astype(next(kind for kind in _WIDTHS if np.iinfo(kind).min <= least and most <= np.iinfo(kind).max))


def together(parts: list[Column]) -> Column:
    """Pieces of one column, one after the other."""
    kinds = {part.dtype.kind if isinstance(part, np.ndarray) else "" for part in parts}
    if len(kinds) == 1 and "" not in kinds:
        return np.concatenate(parts)  # of several widths the widest
    return list(chain.from_iterable(map(plain, parts)))


def _taken(column: Column, places: NDArray[np.int64]) -> Column:
    return [column[place] for place in places] if isinstance(column, list) else column[places]


def plain(column: Column) -> list[Any]:
    """A column as Python's own values."""
    if isinstance(column, list):
        return column
    if column.dtype.kind == "S":
        return [value.decode() for value in column.tolist()]
    values: list[Any] = column.tolist()
    return values


def _one(value: Any) -> Any:
    """One value of a column, as Python's own."""
    if isinstance(value, np.bytes_):
        return value.decode()
    return value.item() if isinstance(value, np.generic) else value


def texts(column: Column) -> NDArray[np.bytes_]:
    """A column of texts, encoded, to be compared."""
    return column if isinstance(column, np.ndarray) else np.array(
        [str(value).encode("utf-8", "surrogatepass") for value in column], np.bytes_)


def numbered(column: Column) -> tuple[list[Any], NDArray[np.int64]]:
    """The different values of a column, in the order in which they come first, and which of them each row has."""
    if isinstance(column, list):
        numbers: dict[Any, int] = {}
        rows = [numbers.setdefault(value, len(numbers)) for value in column]
        return list(numbers), np.asarray(rows, np.int64)
    different, first, rows_ = np.unique(column, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    return plain(different[order]), rank[rows_]


def ranks(*series: Series[Any]) -> list[NDArray[np.int64]]:
    """Return, for each series, where each of its events stands among those of all of them, in the order of time; all
    are of one process."""
    moments = np.concatenate([each.t for each in series])
    order = np.lexsort((np.concatenate([each.places for each in series]), moments))
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    return np.split(rank, np.cumsum([len(each) for each in series])[:-1])


def times(events: Sequence[Event]) -> list[float]:
    """Return when each of them was, in seconds since the run began."""
    return events.plain("t") if isinstance(events, Series) else [event.t for event in events]


def values(events: Sequence[Event], name: str) -> list[Any]:
    """A field of each of them."""
    return events.plain(name) if isinstance(events, Series) else [getattr(event, name) for event in events]
