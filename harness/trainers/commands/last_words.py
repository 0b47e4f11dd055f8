"""Why a process ended, by its own words: the last line of its log that says so."""

from __future__ import annotations

import re
from collections.abc import Sequence

_LONGEST = 200
_FROM_THE_END = 200
"""So many lines are looked at: launchers write a report of their own after a worker's traceback."""
_ESCAPE = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_PREFIX = re.compile(r"^\[[\w. -]{1,40}\]:?\s?")
_TRACEBACK = "Traceback (most recent call last)"
_RAISED = re.compile(r"^[A-Za-z_][\w.]*(Error|Exception|Interrupt|Exit|Failure|Timeout|Warning)\b")


def last_words(lines: Sequence[str]) -> str:
    """Return the last line of the last Python traceback; where there is none, the last line that says anything; empty
    where none does."""
    plain = [_PREFIX.sub("", _ESCAPE.sub("", line)).rstrip() for line in lines[-_FROM_THE_END:]]
    trace = max((number for number, line in enumerate(plain) if _TRACEBACK in line), default=None)
    raised = [] if trace is None else [line for line in plain[trace + 1:] if _RAISED.match(line)]
    said = raised[:1] or [line.strip() for line in plain if line.strip()][-1:]
    return said[0][:_LONGEST] if said else ""
