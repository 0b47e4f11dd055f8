"""What else goes on on this machine while a run does: who has its processors, what they wait for, and how long it stood
still. Read from /proc (proc(5), and Documentation/accounting/psi.rst of the Linux kernel), about once a second.

A process' time is counted with that of the children that it has waited for, so that none is lost when one of ours ends
below another one of ours. Where one ended that nobody of ours has waited for, such as a container's, or a worker's
whose parent does not care, nothing is said of that second: its time can't be told from anybody else's.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from diloco_chaos.harness.base.processes import (
    Carriers,
    cpu_seconds_of_family,
    disk_bytes_of_family,
    family,
    longest_wait,
    memory_of_family,
    run_delays,
)

_EVERY_S = 1.0
_NAP_S, _SYNC_EVERY_S = 0.05, 0.25
_TICKS_S = 0.05
"""Times are counted in ticks of a hundredth of a second, and not all at the same moment."""
_RESOURCES = ("cpu", "io", "memory")
_SCARCE = 0.25
"""Share of the memory that can be had below which it matters who holds the rest."""


@dataclass(frozen=True)
class Sample:
    """A sample of what went on in the seconds up to now. Processors are counted as means: 1.5 is one and a half of
    them."""

    seconds: float
    cores: int
    idle: float
    """Processors that nobody used."""
    ours: float
    """Processors that this run used, the harness included."""
    others: float
    """Processors that anybody else on this machine used."""
    stolen: float
    """Processors that the host of this virtual machine kept for itself."""
    late: float
    """The longest time, in seconds, for which a thread of the harness that wanted to run could not."""
    cpu: float
    """Share of the time in which something waited for a processor."""
    io: float
    """The same for a disk."""
    memory: float
    """The same for memory."""
    disk_ours: float
    """MB a second that this run read from disks and gave them to store."""
    disk_all: float
    """MB a second that went from disks and to them, whoever wanted it."""
    memory_ours: float
    """Share of the memory that this run holds now. While there is plenty, what forks share counts for each of them."""
    memory_left: float
    """Share of the memory that can be had now."""
    sync: float
    """The longest time, in seconds, that a few bytes of the harness' own took to be on the run's disk."""
    waited: float | None = None
    """The seconds for which that thread of the run's nodes waited for a processor that waited longest; None: not known.
    More than `seconds` where it had begun to wait before."""

    def fields(self) -> dict[str, Any]:
        """Return the sample's fields for the tape."""
        return {name: round(value, 3) for name, value in asdict(self).items() if value is not None}


@dataclass(frozen=True)
class _Counters:
    """Running totals, in seconds."""

    at: float
    idle: float
    stolen: float
    all: float
    roots: Collection[int]
    """Processes of the run that are below no other one of it."""
    ours: Mapping[int, tuple[float, float]]
    """Of each of its processes its own time, and that of the children it has waited for."""
    waited: Mapping[str, float]
    delays: Mapping[int, float]
    """By thread of the run's nodes, the waiting for a processor."""
    disk: Mapping[int, int]
    """Bytes, by root process."""
    disk_all: int
    memory_ours: float
    memory_left: float


class MachineWatch:
    """Looks at the machine whenever it is asked to, at most once a second."""

    def __init__(self, roots: Callable[[], Collection[int]], token: str, folder: Path,
                 clock: Callable[[], float] = time.monotonic) -> None:
        """`roots`: the processes of the run that are not below the harness itself, such as those in containers. Who
        carries the run's `token` is part of it, too, although its parent may have ended; empty: nobody does.
        `folder`: on the run's disk."""
        self._roots, self._clock = roots, clock
        self._carriers = Carriers(token) if token else None
        self._before: _Counters | None = None
        self._naps, self._syncs = _Naps(), _Syncs(folder)

    def look(self) -> Sample | None:
        """Return what went on since the last look; None before a second has passed, and where it is unknown."""
        if self._before is not None and self._clock() - self._before.at < _EVERY_S:
            return None
        before, now = self._before, self._read()
        self._before, late, sync = now, self._naps.worst(), self._syncs.worst()
        if before is None or now is None or now.roots != before.roots or _lost(before, now) > _TICKS_S:
            return None
        return _between(before, now, late, sync)

    def close(self) -> None:
        """Watch no more."""
        self._naps.over.set()
        self._syncs.over.set()

    def _read(self) -> _Counters | None:
        here = os.getpid()
        idle, stolen, every = _processors()
        if not every:
            return None
        mine = family(here)
        families = {here: mine, **{pid: family(pid) for pid in self._roots() if pid not in mine}}
        known = {pid for members in families.values() for pid in members}
        if self._carriers is not None:
            families |= {pid: [pid] for pid in self._carriers.among(known)}
        ours = cpu_seconds_of_family(pid for members in families.values() for pid in members)
        disk = {pid: disk_bytes_of_family(members) for pid, members in families.items()}
        memory, left = memory_and_left()
        held = sum(memory_of_family(members, exact=left < _SCARCE * memory) for members in families.values())
        waited = {what: _waited(what) for what in _RESOURCES}
        delays = run_delays(pid for members in families.values() for pid in members if pid != here)
        return _Counters(
            self._clock(), idle, stolen, every, families.keys(), ours, waited, delays, disk,
            sum(_kilobytes("vmstat", "pgpgin", "pgpgout")) * 1024, held / (memory or 1), left / (memory or 1))


def _lost(before: _Counters, now: _Counters) -> float:
    """Seconds that processes had used which have ended since, and which nobody has who would have waited for them."""
    ended = sum(sum(before.ours[pid]) for pid in before.ours.keys() - now.ours.keys())
    handed_on = sum(waited - before.ours.get(pid, (0.0, 0.0))[1] for pid, (_, waited) in now.ours.items())
    return ended - handed_on


def _between(before: _Counters, now: _Counters, late: float, sync: float) -> Sample:
    seconds = now.at - before.at
    idle, stolen, every = ((getattr(now, key) - getattr(before, key)) / seconds for key in ("idle", "stolen", "all"))
    ours = max(0.0, sum(map(sum, now.ours.values())) - sum(map(sum, before.ours.values()))) / seconds
    disk_ours = max(0, sum(now.disk[pid] - before.disk[pid] for pid in now.disk)) / seconds / 1e6
    disk_all = max(0, now.disk_all - before.disk_all) / seconds / 1e6
    shares = {what: min(1.0, (now.waited[what] - before.waited[what]) / seconds) for what in _RESOURCES}
    return Sample(seconds, os.cpu_count() or 1, max(0.0, idle), ours, max(0.0, every - idle - stolen - ours),
                  max(0.0, stolen), late, **shares, disk_ours=disk_ours, disk_all=disk_all, memory_ours=now.memory_ours,
                  memory_left=now.memory_left, sync=sync, waited=longest_wait(before.delays, now.delays))


class _Naps:
    """A thread that sleeps, and notices how much longer than it wanted to."""

    def __init__(self) -> None:
        self.over = threading.Event()
        self._worst = 0.0
        threading.Thread(target=self._nap, name="machine", daemon=True).start()

    def worst(self) -> float:
        """Since the last time, in seconds."""
        worst, self._worst = self._worst, 0.0
        return worst

    def _nap(self) -> None:
        before = time.monotonic()
        while not self.over.wait(_NAP_S):
            now = time.monotonic()
            self._worst, before = max(self._worst, now - before - _NAP_S), now


class _Syncs:
    """A thread that stores a byte on a disk now and then, and notices how long that took: whatever else is to be stored
    there, and whoever wanted it, has to be waited for. The file has no name, so that nothing is left of it."""

    def __init__(self, folder: Path) -> None:
        self.over = threading.Event()
        self._worst = 0.0
        self._began: float | None = None
        threading.Thread(target=self._sync, args=(folder,), name="disk", daemon=True).start()

    def worst(self) -> float:
        """Since the last time, in seconds; what is not stored yet counts up to now."""
        worst, self._worst = self._worst, 0.0
        began = self._began
        return worst if began is None else max(worst, time.monotonic() - began)

    def _sync(self, folder: Path) -> None:
        with suppress(OSError), TemporaryFile(dir=folder, buffering=0) as file:
            while not self.over.wait(_SYNC_EVERY_S):
                self._began = began = time.monotonic()
                with suppress(OSError):  # a full disk says nothing of how fast it is
                    file.write(b".")
                    os.fsync(file.fileno())
                self._worst, self._began = max(self._worst, time.monotonic() - began), None


def _processors() -> tuple[float, float, float]:
    """Seconds of all processors since the machine began: idle, stolen, all; none where that can't be read."""
    try:
        fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    except OSError:
        return 0.0, 0.0, 0.0
    user, nice, system, idle, iowait, irq, softirq, stolen = (int(field) / os.sysconf("SC_CLK_TCK")
                                                              for field in fields[:8])
    return idle + iowait, stolen, user + nice + system + idle + iowait + irq + softirq + stolen


def memory_and_left() -> tuple[int, int]:
    """Return the bytes of memory that this machine has, and those that can be had now."""
    memory, left = _kilobytes("meminfo", "MemTotal:", "MemAvailable:")
    return memory * 1024, left * 1024


def _kilobytes(file: str, *names: str) -> list[int]:
    """Return the named values of /proc/meminfo or /proc/vmstat, in the file's units; 0 where the kernel gives none."""
    try:
        values = {words[0]: words[1] for words in map(str.split, Path(f"/proc/{file}").read_text().splitlines())}
    except OSError:
        values = {}
    return [int(values.get(name, 0)) for name in names]


def _waited(what: str) -> float:
    """Seconds in which something waited for it, since the machine began; 0 where the kernel does not say."""
    try:
        some = Path(f"/proc/pressure/{what}").read_text().split("\n", 1)[0]
        return int(some.rpartition("total=")[2]) / 1e6
    except (OSError, ValueError):  # ValueError: a kernel without pressure stall information for this
        return 0.0
