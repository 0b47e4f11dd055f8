"""The processes that a node elsewhere has started: its agent tells them apart."""

from __future__ import annotations

import signal
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from diloco_chaos.harness.places.base import NodeSpec
from diloco_chaos.harness.places.nodes import called
from diloco_chaos.harness.places.nodes.nodes import Nodes
from diloco_chaos.harness.places.remote.connection import GoneError
from diloco_chaos.harness.places.remote.process import RemoteProcess


class Inner(NamedTuple):
    """One of them, by what the scenario calls it."""

    expression: str
    which: str

    @property
    def fields(self) -> dict[str, Any]:
        """Return what an agent is asked with."""
        return self._asdict()

    @property
    def finder(self) -> bytes:
        """Return the module with which an agent finds it: an image may have nothing of ours."""
        return Path(called.__file__).read_bytes()


def inner_process(spec: NodeSpec, process: str) -> Inner | None:
    """Return the process of a node that is called NAME-ID; None: the scenario has no such name."""
    name, _, which = process.rpartition("-")
    expression = spec.program.processes.get(name, "") if spec.program is not None else ""
    return Inner(expression, which) if expression else None


class RemoteProcesses:
    """Implements `diloco_chaos.harness.places.capabilities.InnerProcesses`."""

    def __init__(self, nodes: Nodes[RemoteProcess]) -> None:
        self._nodes = nodes

    def signal_process(self, node: str, process: str, number: signal.Signals) -> list[int]:
        """Signal a process of a command; its pids are those that its host knows."""
        running = self._nodes[node]
        inner = inner_process(running.spec, process)
        if inner is None or not running.alive or running.process.host.lost:
            return []
        with suppress(GoneError):
            answer = running.process.agent.ask("signal_inner", inner.finder, name=running.process.name,
                                               number=int(number), **inner.fields)
            return [int(pid) for pid in answer["pids"]]
        return []
