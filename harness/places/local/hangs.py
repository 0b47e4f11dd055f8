"""Main threads of processes on this machine that stand, while their processes look alive."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from diloco_chaos.harness.base.processes import Identity, identity, send
from diloco_chaos.harness.places.local.preloads import Preloads
from diloco_chaos.harness.places.local.undos import Release
from diloco_chaos.harness.places.nodes.nodes import Nodes
from diloco_chaos.harness.preload.page import STAND, Holding, Page, Stood
from diloco_chaos.harness.record.undo_log import OpenUndos, UndoLog

_AT_ONCE, _AGAIN_S = 25, 0.002


class Called(Protocol):
    """A process whose main thread is to stand."""

    @property
    def pid(self) -> int:
        """Return its pid on this machine."""
        ...

    def stand(self) -> None:
        """Send it `STAND`."""
        ...


class _Hang(NamedTuple):
    page: Page
    process: Called


class _Known(NamedTuple):
    process: Identity
    token: str

    @property
    def pid(self) -> int:
        return self.process.pid

    def stand(self) -> None:
        send(self.process, self.token, STAND)


class Hangs:
    """Implements `diloco_chaos.harness.places.capabilities.MainThreads`."""

    def __init__(self, preloads: Preloads, nodes: Nodes[Any], undo_log: UndoLog) -> None:
        self._preloads, self._nodes, self._token = preloads, nodes, undo_log.token
        self._undos = OpenUndos(undo_log)
        self._hangs: dict[str, _Hang] = {}  # by the fault

    def hang(self, node: str, fault: str, holding: Holding) -> str:
        """Let the page say so, and send the signal until one stands."""
        return self._hang(node, fault, "", holding)

    def _hang(self, node: str, fault: str, process: str, holding: Holding) -> str:
        called = self._called(node, process)
        if called is None:
            return f"{node} had no process {process}" if process else f"{node} was not there"
        if not self._catches(called):
            return f"{node}: nothing was preloaded into {process or 'its first process'}: is it linked statically?"
        page, path = self._preloads.page(node)
        if any(hang.page is page for hang in self._hangs.values()):
            return f"{node}: another main thread of it is to stand: one at a time"
        self._owe(fault, path)
        self._hangs[fault] = _Hang(page, called)
        page.hang(holding)
        for _ in range(_AT_ONCE):
            if self.press(fault):
                break
            time.sleep(_AGAIN_S)
        return ""

    def press(self, fault: str) -> Stood | None:
        """Send the signal again where none stands yet."""
        if (hang := self._hangs.get(fault)) is None:
            return None
        if not hang.page.stood and self._catches(hang.process):
            hang.process.stand()
        return hang.page.stood

    def release(self, fault: str) -> None:
        """Let the page say that it is over."""
        if (hang := self._hangs.pop(fault, None)) is not None:
            hang.page.release()
            self._undos.complete(fault)

    def residue(self) -> list[str]:
        """Return what still stands, in words."""
        return [f"the main thread of pid {hang.process.pid} stands" for hang in self._hangs.values()]

    def _owe(self, fault: str, page: Path) -> None:
        self._undos.record(fault, Release, page=page)

    def _catches(self, called: Called) -> bool:
        return catches(called.pid)

    def _called(self, node: str, process: str) -> Called | None:
        known = self._identity(node, process)
        return None if known is None else _Known(known, self._token)

    def _identity(self, node: str, process: str) -> Identity | None:
        running = self._nodes[node]
        if not process:
            return identity(running.process.pid)
        name, _, which = process.rpartition("-")
        if running.process.family is None or running.spec.program is None:
            return None
        called = running.process.family.called(running.spec.program.processes[name], which)
        return called[0] if called else None


class InnerHangs(Hangs):
    """Implements `diloco_chaos.harness.places.capabilities.InnerMainThreads`."""

    def hang_inner(self, node: str, fault: str, process: str, holding: Holding) -> str:
        """Do the same to one of the processes that it has started."""
        return self._hang(node, fault, process, holding)


def catches(pid: int) -> bool:
    """Return whether a process catches `STAND`: one that does not would die of it."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return False
    caught = next((line for line in lines if line.startswith("SigCgt:")), "SigCgt: 0")
    return bool(int(caught.split()[1], 16) >> (STAND - 1) & 1)
