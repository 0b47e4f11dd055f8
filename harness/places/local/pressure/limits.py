"""How much of this machine pressure may take: it must stay able to undo it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from diloco_chaos.harness.base.machine import memory_and_left
from diloco_chaos.harness.base.units import show_bytes

WORKERS_EACH = 4
"""Busy workers for each processor, at most."""
RESERVE = 0.1
"""Share of the memory, and of a disk, that stays free."""
_V2, _V1 = Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/memory")


def memory_room() -> int:
    """Return the bytes of memory that may be taken: a tenth of the machine's, and of each control group's that this
    process is in, stays free."""
    total, left = memory_and_left()
    return max(0, int(min([left - RESERVE * total, *(most - used - RESERVE * most for most, used in _groups())])))


def why_not_memory(size: int) -> str:
    """Return why so many bytes of memory may not be taken; empty: they may."""
    room = memory_room()
    return "" if 0 < size <= room else (f"{show_bytes(size)} of memory would leave less than {RESERVE:.0%} of it free: "
                                        f"write `size: {show_bytes(room)}` or less")


def why_not_disk(folder: Path, size: int) -> str:
    """Return why so many bytes may not be written there; empty: they may."""
    disk = os.statvfs(folder)
    room = max(0, int((disk.f_bavail - RESERVE * disk.f_blocks) * disk.f_frsize))
    return "" if size <= room else (f"{show_bytes(size)} of files would leave less than {RESERVE:.0%} of the run's "
                                    f"disk free: write `size: {show_bytes(room)}` or less")


def why_not_workers(workers: int, processors: int) -> str:
    """Return why so many may not be busy; empty: they may."""
    most = WORKERS_EACH * processors
    return "" if workers <= most else (f"{workers} workers on {processors} processors are more than {WORKERS_EACH} for "
                                       f"each: write `workers: {most}` or less")


def _groups() -> Iterator[tuple[int, int]]:
    """Yield the limit and the use, in bytes, of the memory of each control group that this process is in."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, name = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        root, most, used = ((_V1, "memory.limit_in_bytes", "memory.usage_in_bytes") if controllers else
                            (_V2, "memory.max", "memory.current"))
        own = root / name.lstrip("/")
        for folder in [own, *(parent for parent in own.parents if parent.is_relative_to(root))]:
            with suppress(OSError, ValueError):  # ValueError: `max`
                yield int((folder / most).read_text()), int((folder / used).read_text())
