"""What happens to the simulated machine under one node: to its memory, its power and its clock."""

from __future__ import annotations

import signal

from diloco_chaos.harness.places.nodes.nodes import Nodes
from diloco_chaos.harness.places.simulated.disks import SimulatedDisks
from diloco_chaos.harness.places.simulated.process import VirtualProcess


class SimulatedMachines:
    """Implements `MemoryLimits`, `Power` and `Clocks` of `diloco_chaos.harness.places.capabilities`."""

    def __init__(self, nodes: Nodes[VirtualProcess], disks: SimulatedDisks) -> None:
        self._nodes, self._disks = nodes, disks

    def exhaust_memory(self, node: str, restart_after: float | None) -> None:
        """SIGKILL, and it is said why."""
        self._nodes[node].process.oom = True
        self._nodes[node].end(signal.SIGKILL, restart_after)

    def lose_power(self, node: str, restart_after: float | None) -> None:
        """SIGKILL, and only what was synced is left."""
        self._nodes[node].end(signal.SIGKILL, restart_after)
        if node in self._disks.of_node:
            self._disks.of_node[node].lose_power()

    def jump_clock(self, node: str, seconds: float) -> None:
        """Set the clock that the node sees forward."""
        if self._nodes[node].alive:
            self._nodes[node].process.simulated.jump(seconds)
