"""All processes of an incarnation that is somebody's command: the first one, and all that it has started.

A fault means all of them, as a scheduler's cgroup does. Children are found through their parents, and those whose
parent is gone by a variable that each of them has inherited; one that cleared its environment and lost its parent is
not.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

from diloco_chaos.harness.base.processes import Identity, end_all, family, send, with_token
from diloco_chaos.harness.base.units import shortened
from diloco_chaos.harness.places.nodes.called import called
from diloco_chaos.harness.trainers.core.programs import NODE

_GONE_S = 0.5
"""A process that was sent SIGKILL is gone within this time, unless it hangs in the kernel."""
_LEAVES_S = 0.3
"""A process that ends because its parent did is gone within this time."""
_LOOK_S = 0.02
_SHOWN = 120
_MOST_SWEEPS = 10
"""A process that forks faster than that is not to keep the harness."""


class Family:
    """See the module. Implements `diloco_chaos.harness.places.nodes.duty_cycle.Signalled`."""

    def __init__(self, popen: subprocess.Popen[bytes], token: str, started_as: str, *,
                 keeps_leftovers: bool = False) -> None:
        """`popen`: the first. `token`: of the run. `started_as`: NAME.NUMBER of the incarnation. `keeps_leftovers`:
        what it leaves behind lives on until the run is over."""
        self.keeps_leftovers = keeps_leftovers
        self._popen, self._token, self._started_as = popen, token, started_as

    @property
    def pid(self) -> int:
        """Return the pid of the first process."""
        return self._popen.pid

    def send_signal(self, sig: int) -> None:
        """Signal all of them, those that were started meanwhile, too. No process is signalled once the first was waited
        for."""
        done: set[int] = set()
        while self._popen.poll() is None and (left := set(family(self.pid)) - done):
            for pid in left:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, sig)
            done |= left

    def processes(self) -> list[Identity]:
        """Return all of them, by age."""
        return sorted(self._carriers(), key=_started)

    def left_behind(self) -> list[str]:
        """Return the processes that are there a moment after the first has ended, pid and command, by age."""
        until = time.monotonic() + _LEAVES_S
        while (left := self._carriers()) and time.monotonic() < until:
            time.sleep(_LOOK_S)
        return [f"{process.pid} {shortened(_command(process.pid), _SHOWN)}" for process in sorted(left, key=_started)]

    def sweep(self, *, run_is_over: bool = False) -> None:
        """End every process that still carries its name, also one that was forked meanwhile, and wait until all are
        gone: their successor may want what they hold. One that hangs in the kernel is left to die. What lives on until
        the run is over is ended then."""
        if self.keeps_leftovers and not run_is_over:
            return
        carriers_now = self._carriers_of_node if self.keeps_leftovers else self._carriers
        hanging: list[Identity] = []
        for _ in range(_MOST_SWEEPS):
            if not (carriers := [carrier for carrier in carriers_now() if carrier not in hanging]):
                return
            hanging += end_all(carriers, self._token, _GONE_S)

    def signal_process(self, expression: str, which: str, number: signal.Signals) -> list[int]:
        """Signal the process that is called so; return the pids that were signalled. A pause is taken back from all of
        that name: others may have come or gone meanwhile."""
        called = self.called(expression, which)
        chosen = called if number == signal.SIGCONT else called[:1]
        return [carrier.pid for carrier in chosen if send(carrier, self._token, number)]

    def called(self, expression: str, which: str) -> list[Identity]:
        """Return the processes of this name, the first one first."""
        carriers = {carrier.pid: carrier for carrier in self._carriers()}
        return [carriers[pid] for pid in called(expression, which, self.pid, carriers)]

    def _carriers(self) -> list[Identity]:
        """Return every process that was started as this incarnation, or by it."""
        return [carrier for carrier in with_token(self._token) if started_as(carrier.pid) == self._started_as]

    def _carriers_of_node(self) -> list[Identity]:
        """Return every process that was started as any incarnation of the node, or by one."""
        node = self._started_as.rpartition(".")[0]
        return [carrier for carrier in with_token(self._token) if started_as(carrier.pid).rpartition(".")[0] == node]


def _started(process: Identity) -> tuple[int, int]:
    return process.start, process.pid


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace").strip()
    except OSError:
        return "(gone)"


def started_as(pid: int) -> str:
    """Return NAME.NUMBER of the command that a process belongs to; empty where it belongs to none."""
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return ""
    return next((entry.partition(b"=")[2].decode("ascii", "replace") for entry in environment
                 if entry.startswith(f"{NODE}=".encode())), "")
