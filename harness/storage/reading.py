"""Files that others wrote, or that grow: however long one is, no more of it is read than there is room for."""

from __future__ import annotations

import os
from pathlib import Path

MOST_BYTES = 64 << 20
"""Of a file that is read at once."""
_TAIL_BYTES = 1 << 18
_LONGEST_LINE = 2000


def bytes_of(path: Path, most: int = MOST_BYTES) -> bytes:
    """All that a file holds.

    Raises:
        OSError: it can't be read.
        ValueError: it has more bytes than that.
    """
    with open(path, "rb") as file:
        found = file.read(most + 1)
    if len(found) > most:
        raise ValueError(f"more than {most >> 20} MB")
    return found


def last_lines(path: Path) -> list[str]:
    """The lines at the end of a log, each cut where it is very long; none where there is no such file."""
    try:
        with open(path, "rb") as file:
            start = max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES)
            file.seek(start)
            lines = file.read(_TAIL_BYTES).decode(errors="replace").splitlines()
    except OSError:
        return []
    whole = lines[1:] if start and len(lines) > 1 else lines
    return [line[:_LONGEST_LINE] for line in whole]
