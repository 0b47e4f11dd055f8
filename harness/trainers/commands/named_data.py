"""Which data a round was made on, as a trainer names them: one number, a range, or a list of these. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from diloco_chaos.harness.trainers.commands.fields import whole
from diloco_chaos.harness.trainers.core.round_reports import Named

MOST = 1 << 63
_RUN = re.compile(r"(\d{1,19})(?:\s*(?:-|–|\.\.\.?)\s*(\d{1,19}))?")
_LIST = re.compile(rf"{_RUN.pattern}(?:[\s,;]+{_RUN.pattern})*")
_GROUPED = re.compile(r"[1-9]\d{0,2}(?:,\d{3})+")
_AROUND = " \t\r\n\"'()[]{}<>,;"
_NAMES_NONE = "{!r} names no data: write a number, a range (12-15), or a list ([3, 4])"


def named(value: Any) -> Named:
    """Return the numbers that a value names: `7`, `"12-15"`, `"[3, 4]"`, `[3, 4]`, `["12-15", 20]`.

    Raises:
        ValueError: it names none.
    """
    return tuple(_together(_runs(value)))


def samples(value: Any) -> dict[str, Any]:
    """Return how many samples a value says there are, and which they are: a number alone is a count; a range, or a
    list, names them.

    Raises:
        ValueError: it says neither.
    """
    try:
        return {"samples": whole(value)}
    except ValueError:
        those = named(value)
        return {"samples": sum(last - first + 1 for first, last in those), "named_samples": those}


def _runs(value: Any) -> Iterator[tuple[int, int]]:
    """Yield the runs of numbers in a value."""
    if isinstance(value, list | tuple):
        for item in value:
            yield from _runs(item)
    elif isinstance(value, str):
        yield from _runs_of_text(value)
    elif not isinstance(value, bool) and isinstance(value, int | float) and 0 <= value < MOST and value == int(value):
        yield int(value), int(value)
    else:
        raise ValueError(_NAMES_NONE.format(str(value)[:40]))


def _runs_of_text(text: str) -> Iterator[tuple[int, int]]:
    if _GROUPED.fullmatch(text.strip()):
        text = text.replace(",", "")
    if not _LIST.fullmatch(plain := text.strip(_AROUND)):
        raise ValueError(_NAMES_NONE.format(text[:40]))
    for match in _RUN.finditer(plain):
        first, last = int(match[1]), int(match[2] or match[1])
        if not first <= last < MOST:
            raise ValueError(_NAMES_NONE.format(text[:40]))
        yield first, last


def _together(runs: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield the runs in their order; one that goes on where the last one ended is part of it."""
    current: tuple[int, int] | None = None
    for first, last in runs:
        if current is not None and first == current[1] + 1:
            current = current[0], last
        else:
            if current is not None:
                yield current
            current = first, last
    if current is not None:
        yield current
