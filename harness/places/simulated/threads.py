"""The main threads of simulated processes, which have no other one."""

from __future__ import annotations

from diloco_chaos.harness.places.nodes.nodes import Nodes
from diloco_chaos.harness.places.simulated.process import VirtualProcess
from diloco_chaos.harness.preload.page import Holding, Stood


class SimulatedThreads:
    """Implements `diloco_chaos.harness.places.capabilities.MainThreads`. Whatever a thread holds while it stands, the
    process stands, and its connections do."""

    def __init__(self, nodes: Nodes[VirtualProcess]) -> None:
        self._nodes = nodes
        self._standing: dict[str, VirtualProcess] = {}  # by fault

    def hang(self, node: str, fault: str, holding: Holding) -> str:
        """Let it stand."""
        if not self._nodes[node].alive:
            return f"{node} is not there"
        self._standing[fault] = self._nodes[node].process
        self._standing[fault].freeze()
        return ""

    def press(self, fault: str) -> Stood | None:
        """Return the process that stands."""
        return Stood(self._standing[fault].known_pid, with_gil=True) if fault in self._standing else None

    def release(self, fault: str) -> None:
        """Let it go on, if it is still there."""
        if (process := self._standing.pop(fault, None)) is not None and process.ended() is None:
            process.thaw()
