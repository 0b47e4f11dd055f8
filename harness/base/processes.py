"""Which process is which: a pid alone is reused, so a process is known by pid, start time and the run's token."""

from __future__ import annotations

import os
import resource
import select
import signal
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

TOKEN = "DILOCO_CHAOS_TOKEN"  # noqa: S105 - the variable's name, not a secret
"""Environment variable that every process of a run carries."""


class Identity(NamedTuple):
    """A process that can't be mistaken for another one."""

    pid: int
    start: int
    """Start time in clock ticks since boot, field 22 of /proc/PID/stat."""


def identity(pid: int) -> Identity | None:
    """Return the identity of the process that has this pid now; None where no process has it, or only what is left of
    one that ended."""
    stat = _stat(pid)
    return Identity(pid, int(stat[19])) if stat and stat[0] not in "ZX" else None


def state(pid: int) -> str:
    """One letter, as in /proc/PID/stat: R, S, T (stopped), Z (ended, not waited for); empty where there is none."""
    stat = _stat(pid)
    return stat[0] if stat else ""


def children(pid: int) -> list[int]:
    """Return the pids of the processes that a process's threads have started; empty where it is gone."""
    pids = []
    try:
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):  # the thread has ended
                pids += [int(child) for child in (thread / "children").read_text().split()]
    except OSError:
        return []
    return pids


def parent(pid: int) -> int:
    """Return the pid of the process that started this one, or has taken it over; 0 where there is none."""
    stat = _stat(pid)
    return int(stat[1]) if stat else 0


def words(pid: int) -> list[str]:
    """Return the words of a process's command line, and its environment as `NAME=VALUE`; what can't be read is left
    out."""
    entries = []
    for file in ("cmdline", "environ"):
        with suppress(OSError):
            entries += Path(f"/proc/{pid}/{file}").read_bytes().decode("utf-8", "replace").split("\0")
    return entries


def own_name(pid: int) -> str:
    """Return what a process calls itself, cut after 15 characters as by the kernel; empty where there is none."""
    try:
        return Path(f"/proc/{pid}/comm").read_text(errors="replace").rstrip("\n")
    except OSError:
        return ""


def cpu_seconds(pid: int) -> float:
    """Processor time that a process has used, user and system, all its threads; 0 where there is none."""
    stat = _stat(pid)
    return (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK") if stat else 0.0


def cpu_seconds_of_family(pids: Iterable[int]) -> dict[int, tuple[float, float]]:
    """Return by pid the processor seconds of each process, and those of the children that it has waited for."""
    seconds, tick = {}, 1 / os.sysconf("SC_CLK_TCK")
    for pid in pids:
        if stat := _stat(pid):
            user, system, user_of_children, system_of_children = map(int, stat[11:15])
            seconds[pid] = tick * (user + system), tick * (user_of_children + system_of_children)
    return seconds


def run_delays(pids: Iterable[int]) -> dict[int, float]:
    """Return by thread the seconds that it has waited for a processor while it could have run, for all threads of these
    processes (the second field of /proc/PID/task/TID/schedstat); empty where the kernel does not count that."""
    seconds = {}
    for pid in pids:
        with suppress(OSError):  # it has ended
            for thread in os.listdir(f"/proc/{pid}/task"):
                with suppress(OSError), open(f"/proc/{pid}/task/{thread}/schedstat") as counts:
                    seconds[int(thread)] = int(counts.read().split()[1]) / 1e9
    return seconds


def longest_wait(before: Mapping[int, float], now: Mapping[int, float]) -> float | None:
    """Return the seconds for which that thread waited for a processor that waited longest between two answers of
    `run_delays`; None where there was no thread."""
    waits = [seconds - before.get(thread, 0.0) for thread, seconds in now.items()]
    return max(0.0, *waits) if waits else None


def major_faults(pid: int) -> int:
    """Return how many pages of a process had to be read from a disk when it wanted them; 0 where there is none."""
    stat = _stat(pid)
    return int(stat[9]) if stat else 0


def disk_bytes_of_family(pids: Iterable[int]) -> int:
    """Return how many bytes these processes, and the children that each of them has waited for, have read from disks
    and written to be stored there; nothing of those that are not ours to ask."""
    moved = 0
    for pid in pids:
        with suppress(OSError):
            lines = (line.split(": ") for line in Path(f"/proc/{pid}/io").read_text().splitlines())
            moved += sum(int(count) for name, count in lines if name in ("read_bytes", "write_bytes"))
    return moved


def memory_of_family(pids: Iterable[int], exact: bool = True) -> int:
    """Return the bytes of memory that these processes hold and that no file backs. Forks share what they have not
    written to since: it counts once among them, or, where that need not be exact, for each, which takes microseconds
    instead of milliseconds (smaps_rollup and statm of proc(5))."""
    return sum(map(_own_memory if exact else _resident_memory, pids))


def _own_memory(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:  # it is gone, or another user's
        lines = []
    own = [int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss_Anon:")]
    return own[0] if own else _resident_memory(pid)  # the kernel does not say


def _resident_memory(pid: int) -> int:
    try:
        _, resident, shared, *_ = Path(f"/proc/{pid}/statm").read_text().split()
    except OSError:
        return 0
    return (int(resident) - int(shared)) * os.sysconf("SC_PAGE_SIZE")


def family(pid: int) -> list[int]:
    """Return the pids of a process and of all its descendants, the process first."""
    pids, todo = [], [pid]
    while todo:
        pids.append(todo.pop())
        todo += children(pids[-1])
    return pids


def file_limits(pid: int) -> tuple[int, int] | None:
    """RLIMIT_FSIZE of a process, soft and hard, in bytes, as anybody may read it; None where there is none."""
    try:
        lines = Path(f"/proc/{pid}/limits").read_text().splitlines()
    except OSError:
        return None
    words = next(line for line in lines if line.startswith("Max file size")).split()
    soft, hard = (resource.RLIM_INFINITY if word == "unlimited" else int(word) for word in words[3:5])
    return soft, hard


def carries(pid: int, token: str) -> bool:
    """Return whether a process was started with this token in its environment."""
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False
    return f"{TOKEN}={token}".encode() in environment.split(b"\0")


def with_token(token: str) -> list[Identity]:
    """Return every living process that carries the token."""
    carriers = []
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (process := identity(int(entry))) and carries(process.pid, token):
            carriers.append(process)
    return carriers


class Carriers:
    """The processes that carry a token, for those who ask often: each process is looked at once."""

    def __init__(self, token: str) -> None:
        self._token = token
        self._carries: dict[int, bool] = {}

    def among(self, but: Collection[int]) -> list[int]:
        """Return the pids of all of them but these, which are not looked at: a process that was just forked still shows
        its parent's environment."""
        here = {int(entry) for entry in os.listdir("/proc") if entry.isdigit()} - set(but)
        self._carries = {pid: self._carries[pid] if pid in self._carries else carries(pid, self._token) for pid in here}
        return [pid for pid, ours in self._carries.items() if ours]


def send(process: Identity, token: str, number: int) -> bool:
    """Signal exactly this process if it still lives and carries the token; return whether it was signalled."""
    with handle(process, token) as descriptor:
        if descriptor is None:
            return False
        try:
            signal.pidfd_send_signal(descriptor, number)
        except ProcessLookupError:
            return False
    return True


@contextmanager
def handle(process: Identity, token: str) -> Iterator[int | None]:
    """Yield a pidfd of exactly this process; None where it is gone or does not carry the token.

    The descriptor is opened first and the process looked at afterwards, so that no other can slip in between.
    """
    try:
        descriptor = os.pidfd_open(process.pid)
    except (OSError, OverflowError):
        yield None
        return
    try:
        yield descriptor if identity(process.pid) == process and carries(process.pid, token) else None
    finally:
        os.close(descriptor)


def end_all(processes: Iterable[Identity], token: str, wait_s: float = 3.0) -> list[Identity]:
    """Send SIGKILL to these processes and wait up to `wait_s` seconds for each; return those that still live."""
    targets = list(processes)
    for process in targets:
        send(process, token, signal.SIGKILL)
    left = []
    for process in targets:
        with handle(process, token) as descriptor:
            if descriptor is None:
                continue
            poller = select.poll()
            poller.register(descriptor, select.POLLIN)
            if not poller.poll(wait_s * 1e3):
                left.append(process)
    return left


def _stat(pid: int) -> list[str]:
    """/proc/PID/stat from its third field (the state) on; empty where there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
