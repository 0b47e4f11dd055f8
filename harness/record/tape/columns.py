"""Many records with fields of the same names, in columns: a number takes a byte to eight, where an object takes 30.

What comes out is equal to what went in, and of the same types. What can't be packed is kept as it is.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from sys import intern
from typing import Any, Protocol

import orjson

_SOME, _FEW = 64, 4
"""Where of so many texts each comes so often, on the average, equal ones are kept once."""


class Column(Protocol):
    """The values of one field, by their numbers."""

    def __getitem__(self, number: int, /) -> Any:
        """One of them."""
        ...


class Fields(Mapping[str, Any]):
    """One of many records: each field is made whenever it is asked for."""

    __slots__ = ("_columns", "_number")

    def __init__(self, columns: Mapping[str, Column], number: int) -> None:
        self._columns, self._number = columns, number

    def __getitem__(self, name: str) -> Any:
        return self._columns[name][self._number]

    def __contains__(self, name: object) -> bool:
        return name in self._columns

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def __repr__(self) -> str:
        return repr(dict(self))


def packed(records: Sequence[Mapping[str, Any]]) -> dict[str, Column]:
    """The columns of records whose fields have the same names in the same order."""
    values = zip(*(record.values() for record in records), strict=True)
    return {name: _column(of) for name, of in zip(records[0], values, strict=True)}


def _column(values: Sequence[Any]) -> Column:
    kinds = set(map(type, values))
    kind = kinds.pop() if len(kinds) == 1 else None
    if kind is int:
        return _numbers(values)
    if kind is float:
        return array("d", values)
    if kind is str:
        return _texts(values)
    if kind is list or kind is dict:
        return _documents(values)
    return tuple(values)


def _numbers(values: Sequence[int]) -> Column:
    for size in "BHIq":
        with suppress(OverflowError):
            return array(size, values)
    return tuple(values)


def _texts(values: Sequence[str]) -> Column:
    some = values[:_SOME]
    if len(set(some)) * _FEW <= len(some):
        return tuple(map(intern, values))
    text = "".join(values)
    same = bool(text) and text.isascii() and len(set(map(len, values))) == 1
    return _Texts(text, len(values[0])) if same else tuple(values)


def _documents(values: Sequence[Any]) -> Column:
    """Of what JSON can hold, but for NaN, which would come out as null."""
    try:
        texts = [orjson.dumps(value).decode() for value in values]
        if all("null" not in text or orjson.loads(text) == value for text, value in zip(texts, values, strict=True)):
            return _Documents(_texts(texts))
    except (TypeError, ValueError, RecursionError):  # what only another library reads: names that are no Unicode
        pass
    return tuple(values)


class _Texts:
    """Texts of one length, of one byte a character: digests."""

    __slots__ = ("_length", "_text")

    def __init__(self, text: str, length: int) -> None:
        self._text, self._length = text, length

    def __getitem__(self, number: int) -> str:
        begin = number * self._length
        return self._text[begin:begin + self._length]


class _Documents:
    """Lists and objects as JSON, which is read again more quickly than they are put together from columns."""

    __slots__ = ("_texts",)

    def __init__(self, texts: Column) -> None:
        self._texts = texts

    def __getitem__(self, number: int) -> Any:
        return orjson.loads(self._texts[number])
