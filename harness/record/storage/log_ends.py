"""Where the trouble of a log begins: of the Python tracebacks at its end the first one, not those that followed from
it. An exit handler that is interrupted raises once more, and what it raises stands last."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

_ESCAPE = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_PREFIX = re.compile(r"^\[[\w. -]{1,40}\]:?\s?")
_TRACEBACK = "Traceback (most recent call last)"
_RAISED = re.compile(r"^[A-Za-z_][\w.]*(Error|Exception|Interrupt|Exit|Failure|Timeout|Warning|Iteration)\b")
_CHAINED = ("During handling of the above exception", "The above exception was the direct cause")
_TOGETHER = 20
"""Tracebacks with no more lines between them are of one end."""


class Raised(NamedTuple):
    """An exception in a log."""

    start: int
    """The line at which its traceback begins."""
    named: int
    """The line that names it."""


def plain(line: str) -> str:
    """Return a line without colours, and without the name of a rank before it."""
    return _PREFIX.sub("", _ESCAPE.sub("", line)).rstrip()


def first_raised(lines: Sequence[str]) -> Raised | None:
    """Return the first of the exceptions at the end of a log; of a chain of causes the one that came of it. None: there
    is no traceback that names one.

    Args:
        lines: plain ones.
    """
    raised = _all_raised(lines)
    first = len(raised) - 1
    while first > 0 and raised[first].start - raised[first - 1].named <= _TOGETHER:
        first -= 1
    while 0 <= first < len(raised) - 1 and any(
            words in line for line in lines[raised[first].named:raised[first + 1].start] for words in _CHAINED):
        first += 1
    return raised[first] if raised else None


def telling(lines: Sequence[str], most: int) -> list[str]:
    """Return as many lines of a log as tell most: its end, and, if that hides it, the first exception above."""
    first = first_raised([plain(line) for line in lines])
    if first is None or first.start >= len(lines) - most:
        return list(lines[-most:])
    above = lines[first.start:first.named + 1][-(most // 2):]
    below = most - len(above) - 1
    return [*above, "...", *(lines[max(first.named + 1, len(lines) - below):] if below > 0 else [])]


def _all_raised(lines: Sequence[str]) -> list[Raised]:
    starts = [number for number, line in enumerate(lines) if _TRACEBACK in line]
    named = [(start, next((number for number in range(start + 1, until) if _RAISED.match(lines[number])), None))
             for start, until in pairwise([*starts, len(lines)])]
    return [Raised(start, number) for start, number in named if number is not None]
