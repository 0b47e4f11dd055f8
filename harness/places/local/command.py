"""An incarnation that is somebody's command: a process, and all that it has started.

A fault means all of them, as a scheduler's cgroup does. Children are found through their parents, and those whose
parent is gone by a variable that each of them has inherited; one that cleared its environment and lost its parent is
not.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

from diloco_chaos.harness.base.processes import Identity, family, identity, parent, send, with_token, words
from diloco_chaos.harness.places.base import NodeSpec
from diloco_chaos.harness.places.duty_cycle import Signalled
from diloco_chaos.harness.places.local.process import Process
from diloco_chaos.harness.record.undo_log import UndoLog
from diloco_chaos.harness.trainers.core.programs import NODE


class CommandProcess(Process):
    """See the module."""

    def __init__(self, spec: NodeSpec, number: int, popen: subprocess.Popen[bytes], undo_log: UndoLog) -> None:
        super().__init__(spec, number, popen, undo_log)
        self._token = undo_log.token

    def send(self, number: signal.Signals) -> None:
        """SIGTERM to the first process, which tells its own, as under any scheduler; everything else to all of them."""
        if number == signal.SIGTERM or self.popen.poll() is not None:
            self.popen.send_signal(number)
            return
        self.send_signal(number)

    def send_signal(self, sig: int) -> None:
        """To all; those who were started meanwhile, too."""
        done: set[int] = set()
        while self.popen.poll() is None and (left := set(family(self.popen.pid)) - done):
            for pid in left:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, sig)
            done |= left

    @property
    def _signalled(self) -> Signalled:
        return self

    def gone(self, status: int, now: float) -> None:
        """What it has left behind ends with it."""
        self.sweep()
        super().gone(status, now)

    def reap(self, until: float) -> None:
        """And at the end of the run."""
        super().reap(until)
        self.sweep()

    def sweep(self) -> None:
        """End whoever still carries its name."""
        for who in self._carriers():
            if identity(who.pid) == who:
                with suppress(OSError):
                    os.kill(who.pid, signal.SIGKILL)

    def signal_process(self, expression: str, which: str, number: signal.Signals) -> list[int]:
        """Signal the process of which a word matches this expression, with a group that is `which`. What it has
        started has inherited its environment: the one above counts."""
        found = {who.pid: who for who in self._carriers()
                 if any((match := re.fullmatch(expression, word)) and match[1] == which for word in words(who.pid))}
        return [pid for pid, who in found.items() if parent(pid) not in found and send(who, self._token, number)]

    def _carriers(self) -> list[Identity]:
        """Everybody who was started as this incarnation, or by it."""
        return [who for who in with_token(self._token) if started_as(who.pid) == f"{self.name}.{self.incarnation}"]


def started_as(pid: int) -> str:
    """NAME.NUMBER of the command that a process belongs to; empty where it belongs to none."""
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return ""
    return next((entry.partition(b"=")[2].decode("ascii", "replace") for entry in environment
                 if entry.startswith(f"{NODE}=".encode())), "")
