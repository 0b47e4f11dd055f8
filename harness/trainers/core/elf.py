"""What the header of a program's file says (elf(5))."""

from __future__ import annotations

import struct
from pathlib import Path

_INTERP = 3
_HEADS = {1: ("I", 28, 42), 2: ("Q", 32, 54)}
"""Class of the file -> how an offset is written, where that of the program headers is, where their size and number
are."""


def is_static(program: str | Path) -> bool:
    """Return whether a program is linked statically; no where it is none that the kernel itself starts."""
    try:
        with open(program, "rb") as file:
            head = file.read(64)
            if head[:4] != b"\x7fELF" or head[4] not in _HEADS:
                return False
            word, offset_at, sizes_at = _HEADS[head[4]]
            order = "<" if head[5] == 1 else ">"
            offset, = struct.unpack_from(order + word, head, offset_at)
            size, number = struct.unpack_from(order + "HH", head, sizes_at)
            file.seek(offset)
            headers = file.read(size * number)
        kinds = [struct.unpack_from(order + "I", headers, place)[0] for place in range(0, len(headers), size)]
    except (OSError, ValueError, IndexError, struct.error):  # the latter: it is no whole program
        return False
    return bool(kinds) and _INTERP not in kinds
