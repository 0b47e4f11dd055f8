"""Why a process ended, by its own words: the line of its log that says so."""

from __future__ import annotations

from collections.abc import Sequence

from diloco_chaos.harness.record.storage.log_ends import first_raised, plain

_LONGEST = 200
_FROM_THE_END = 200
"""So many lines are looked at: launchers write a report of their own after a worker's traceback."""


def last_words(lines: Sequence[str]) -> str:
    """Return the line that names the first of the exceptions at the end of a log; where there is none, the last line
    that says anything; empty where none does."""
    ends = [plain(line) for line in lines[-_FROM_THE_END:]]
    raised = first_raised(ends)
    said = [ends[raised.named]] if raised else [line.strip() for line in ends if line.strip()][-1:]
    return said[0][:_LONGEST] if said else ""
