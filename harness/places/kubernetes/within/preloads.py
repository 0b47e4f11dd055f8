"""What is preloaded into the processes of pods, and main threads there that stand, and devices there that fail.

Nothing of it is in the undo log but the pods themselves: it ends with them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from diloco_chaos.harness.places.base import ClusterError, NodeSpec
from diloco_chaos.harness.places.kubernetes.within.page import PodPage
from diloco_chaos.harness.places.local.cuda import CudaFaults
from diloco_chaos.harness.places.local.hangs import Called, InnerHangs
from diloco_chaos.harness.places.local.preloads import CANNOT, LOADS_S, NO_PAGE, Preloads
from diloco_chaos.harness.places.nodes.nodes import Nodes
from diloco_chaos.harness.places.remote.connection import GoneError
from diloco_chaos.harness.places.remote.hosts import LOOK_S, Host
from diloco_chaos.harness.places.remote.inner import Inner, inner_process
from diloco_chaos.harness.places.remote.process import RemoteProcess
from diloco_chaos.harness.preload.page import STAND, Page
from diloco_chaos.harness.record.undo_log import UndoLog

_AT = "/tmp/diloco-chaos.preload"  # noqa: S108 - a pod's own
_OTHER_KIND = ("{node}: {host} is on a machine of another kind ({there}, and this one is {here}): what is preloaded "
               "into processes is built for this one. Choose machines with `node_selector` in --place FILE, or leave "
               "`io`, `hang` and `cuda` out")


class PodPreloads(Preloads):
    """See the module. Libraries are built here, and brought to a pod with its page before anything starts there."""

    def __init__(self, run: Path, nodes: Nodes[RemoteProcess], undo_log: UndoLog) -> None:
        """`run`: the run's folder."""
        super().__init__(run, nodes, undo_log, _AT)

    def bring(self, node: str, host: Host) -> None:
        """Bring to a pod what a node of it has to load; called in the host's thread.

        Raises:
            ClusterError: its machine is another kind of machine.
        """
        if node not in self._pages:
            return
        here, there = os.uname().machine, host.agent.machine
        if here != there:
            raise ClusterError(_OTHER_KIND.format(node=node, host=host.name, there=there or "not known", here=here))
        page = self._pages[node]
        assert isinstance(page, PodPage), "it has made them"
        page.bring(host, {self.found(library): library.read_bytes() for library in self.libraries(node)})

    def must_be_loaded(self, nodes: Sequence[NodeSpec]) -> None:
        """Check that these nodes have loaded what is preloaded into them: their image decides that.

        Raises:
            ClusterError: one has not.
        """
        until = time.monotonic() + LOADS_S
        for spec in (each for each in nodes if each.preloaded):
            while fault := self._not_loaded(spec.name):
                if time.monotonic() > until:
                    raise ClusterError(NO_PAGE.format(node=spec.name, fault=fault, what="pod", cannot=CANNOT[fault]))
                time.sleep(LOOK_S)

    def _not_loaded(self, node: str) -> str:
        """Return the fault by which a node that is there can't be hit; empty: none."""
        process = self._nodes[node].process
        if process.ended() is not None:
            return ""
        if fault := self.missing(node):
            return fault
        return "hang" if "hang" in self._specs[node].preloaded and not _catches(process) else ""

    def _made(self, node: str, spared: Sequence[str]) -> Page:
        return PodPage(self.file(node), self._token, spared, self.found(self.file(node)))

    def _owe(self, node: str, fault: str) -> None:
        """Its pod ends all of it."""


class _InPod(NamedTuple):
    """The first process of a node in a pod, or one that this has started. Implements
    `diloco_chaos.harness.places.local.hangs.Called`."""

    process: RemoteProcess
    inner: Inner | None
    pid: int
    """In the pod."""

    def stand(self) -> None:
        """Have its agent send it `STAND`, if it catches that."""
        if not self.process.host.lost:
            with suppress(GoneError):
                _asked(self.process, self.inner, send=True)


class PodHangs(InnerHangs):
    """Main threads of processes in pods."""

    def _called(self, node: str, process: str) -> Called | None:
        running = self._nodes[node]
        inner = inner_process(running.spec, process) if process else None
        if (process and inner is None) or not running.alive or running.process.host.lost:
            return None
        with suppress(GoneError):
            return _InPod(running.process, inner, int(_asked(running.process, inner)["pid"]))
        return None

    def _catches(self, called: Called) -> bool:
        assert isinstance(called, _InPod), "it has made them"
        return _catches(called.process, called.inner)

    def _owe(self, fault: str, page: Path) -> None:
        """Its pod ends all of it."""


class PodCuda(CudaFaults):
    """Calls of the CUDA runtime that fail in pods."""

    def _owe(self, node: str, page: Path) -> None:
        """Its pod ends all of it."""


def _catches(process: RemoteProcess, inner: Inner | None = None) -> bool:
    """Return whether a process is there and catches `STAND`."""
    with suppress(GoneError):
        return not process.host.lost and bool(_asked(process, inner)["catches"])
    return False


def _asked(process: RemoteProcess, inner: Inner | None, *, send: bool = False) -> dict[str, Any]:
    finds, fields = (inner.finder, inner.fields) if inner else (b"", {})
    return process.agent.ask("catches", finds, name=process.name, number=STAND, send=send, **fields)
