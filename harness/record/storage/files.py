"""Files that somebody else may have put there, or that grow: no more of one is read than there is room for, and what is
written is there whole or not at all, and goes through no link."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

MOST_BYTES = 64 << 20
"""Of a file that is read at once."""
_TAIL_BYTES = 1 << 18
_LONGEST_LINE = 2000


def bytes_of(path: Path, most: int = MOST_BYTES) -> bytes:
    """Return all bytes of a file.

    Raises:
        OSError: it can't be read.
        ValueError: it has more than `most` bytes.
    """
    with open(path, "rb") as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise ValueError(f"more than {most >> 20} MB")
    return content


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


def write_whole(path: Path, text: str) -> None:
    """Write a file, whole or not at all.

    Raises:
        OSError: it can't be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(8)}.partial")
    # nobody can have put a link there whose target would be overwritten
    made = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
    try:
        with open(made, "w", encoding="utf-8") as file:
            file.write(text)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def strange(folder: Path, owner: str, links_in: str = "") -> str:
    """Return a sentence on a link, pipe or device below `folder`, which `owner` leaves none of; empty without one.
    `links_in`: a folder in it whose links are its owner's if they end within it, at a plain file, a folder or nothing.
    """
    path = next(_no_files(folder, folder / links_in if links_in else None), None)
    return "" if path is None else (f"{path}: not a plain file; {owner} leaves no links, pipes or devices in its "
                                    f"folder, so somebody else has put it there; remove it")


def _no_files(folder: Path, linked: Path | None) -> Iterator[Path]:
    for above, names, files in os.walk(folder):
        for name in (*names, *files):
            entry = Path(above, name)
            with suppress(FileNotFoundError):  # its writer has removed it
                if not (stat.S_ISDIR(mode := entry.lstat().st_mode) or stat.S_ISREG(mode)
                        or (linked is not None and stat.S_ISLNK(mode) and _ends_within(entry, linked))):
                    yield entry


def _ends_within(link: Path, folder: Path) -> bool:
    try:
        end, within = link.resolve(), folder.resolve()
    except (OSError, RuntimeError):  # it leads around
        return False
    return (link.is_relative_to(folder) and end.is_relative_to(within)
            and (end.is_file() or end.is_dir() or not end.exists()))
