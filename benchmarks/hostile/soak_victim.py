"""A run that is to be killed at a random moment, and what is there of it afterwards."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import psutil

from diloco_chaos.harness.base.processes import Identity, identity, state, with_token
from diloco_chaos.harness.record.undo_log import UndoLogError, read, undo_logs_folder

MARK = "DILOCO_CHAOS_SOAK"
"""The variable by which all descendants of a run are known."""
Mode = Literal["harness", "reaper first", "both"]


@dataclass
class SoakVictim:
    """A run that is to be killed, and what is known of it."""

    number: int
    mode: Mode
    moment: float
    """Seconds from its start, or from its first fault, to its end."""
    from_fault: bool
    reference: bool
    """Whether it begins with training one."""
    folder: Path
    process: subprocess.Popen[bytes]
    started: float = field(default_factory=time.monotonic)
    due: float | None = None
    """When it is to be killed, once that is known."""
    token: str = ""
    undo_log: Path | None = None
    ports: set[int] = field(default_factory=set)
    reaper: Identity | None = None
    """The one that was killed before the harness."""
    killed: float | None = None
    cleaned: bool = False
    settled: float | None = None
    phase: str = ""
    kinds: tuple[str, ...] = ()
    """Faults that were on when it was killed."""
    left: dict[str, list[str]] = field(default_factory=dict)

    @property
    def mark(self) -> str:
        """What everything that it starts carries in its environment."""
        return str(self.folder)

    def look(self) -> None:
        """Learn its undo log and token while they are there."""
        if self.undo_log is None:
            self.undo_log = next(undo_logs_folder().glob(f"*-{self.process.pid}-*.jsonl"), None)
        if self.undo_log is not None and not self.token:
            try:
                owed = read(self.undo_log)
            except UndoLogError:
                return
            self.token = owed.opened.token if owed else ""

    def is_due(self, now: float) -> bool:
        """Whether its moment has come."""
        if self.due is None and (not self.from_fault or self._has_fault()):
            self.due = (now if self.from_fault else self.started) + self.moment
        return self.due is not None and now >= self.due

    def tape(self) -> Path | None:
        """Where its harness writes, once the run itself has begun."""
        return next((self.folder / "runs").glob("*/tape/harness.0.jsonl"), None)

    def _has_fault(self) -> bool:
        path = self.tape()
        return path is not None and b'"injecting"' in path.read_bytes()

    def reapers(self) -> list[Identity]:
        """Return the reapers that watch over this harness."""
        return [process for process in marked(self.mark)
                if b"diloco_chaos.harness.record.reaper" in _command_line(process)]

    def still_there(self, others: Sequence[SoakVictim]) -> dict[str, list[str]]:
        """Return what is left of it: kind of thing -> one string for each; kinds with nothing left are absent."""
        alive = marked(self.mark)
        if self.token:
            alive = sorted({*alive, *with_token(self.token)})
        theirs = {process.pid for other in others for process in marked(other.mark)}
        remaining = {
            "processes": [f"{process.pid} {b' '.join(_command_line(process)[:4]).decode(errors='replace')}"
                          for process in alive],
            "stopped": [str(process.pid) for process in alive if state(process.pid) == "T"],
            "listening": [str(port) for port, pid in listening() if port in self.ports and pid not in theirs],
            "undo-logs": [str(self.undo_log)] if self.undo_log is not None and self.undo_log.exists() else [],
        }
        return {kind: words for kind, words in remaining.items() if words}


def marked(mark: str) -> list[Identity]:
    """Return every living process that descends from what was started under this mark."""
    processes, entry = [], f"{MARK}={mark}".encode()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if entry in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0") and (process := identity(int(pid))):
                processes.append(process)
        except OSError:
            continue
    return processes


def listening() -> list[tuple[int, int | None]]:
    """Return (port, pid of the process that listens on it, where it is known) for every listening TCP socket."""
    return [(connection.laddr.port, connection.pid) for connection in psutil.net_connections("tcp")
            if connection.status == psutil.CONN_LISTEN and connection.laddr]


def _command_line(process: Identity) -> list[bytes]:
    try:
        return Path(f"/proc/{process.pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return []


def kill(process: Identity, number: signal.Signals = signal.SIGKILL) -> None:
    """Send a signal to this process, and to no other one that has its pid by now."""
    if identity(process.pid) == process:
        try:
            os.kill(process.pid, number)
        except ProcessLookupError:
            pass
