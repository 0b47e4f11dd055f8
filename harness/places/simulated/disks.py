"""The simulated disks of nodes that keep a state."""

from __future__ import annotations

from diloco_chaos.harness.places.base import ClusterError
from diloco_chaos.harness.places.files import Change
from diloco_chaos.harness.places.nodes.nodes import FULL_DISK, Nodes
from diloco_chaos.harness.places.simulated.process import VirtualProcess
from diloco_chaos.harness.simulation.client import SimulatedClient
from diloco_chaos.harness.simulation.disk import MemoryDisk
from diloco_chaos.harness.trainers.core.memory import Corruption


class SimulatedDisks:
    """Implements `diloco_chaos.harness.places.files.NodeFiles` and `diloco_chaos.harness.places.capabilities.Disks`."""

    def __init__(self, nodes: Nodes[VirtualProcess]) -> None:
        self._nodes = nodes
        self.of_node: dict[str, MemoryDisk] = {}

    def state(self, node: str) -> dict[str, int]:
        """Return what is on its disk: name and size in bytes of every file."""
        disk = self._disk(node)
        return {name: len(disk.data(name)) for name in disk.names()}

    def alter(self, node: str, name: str, change: Change) -> bool:
        """Rewrite or remove a file."""
        disk = self._disk(node)
        disk.alter(name, change(disk.data(name)))
        return False

    def reads(self) -> list[tuple[str, str]]:
        """Return nothing: the trainer's own events say what it found."""
        return []

    def tape_size(self, node: str) -> int:
        """None: the tape lies on no simulated disk, and no limit concerns it."""
        return 0

    def corrupt_memory(self, node: str, corruption: Corruption) -> None:
        """The simulated process does it itself."""
        process = self._nodes[node].process.simulated
        assert isinstance(process, SimulatedClient), "only learners train"
        process.corruptions.append(corruption)

    def fill_disk(self, node: str, restart_after: float) -> int:
        """Mark the disk as full, so that nothing more can be written; return the bytes of all its files."""
        disk = self.of_node[node]
        self._nodes.expect_no_space(node, FULL_DISK, restart_after)
        disk.full = True
        return sum(len(disk.data(name)) for name in disk.names())

    def empty_disk(self, node: str) -> None:
        """There is room again."""
        if self.of_node[node].full:
            self.of_node[node].full = False
            self._nodes.space_again(node, FULL_DISK)

    def _disk(self, node: str) -> MemoryDisk:
        if node not in self.of_node:
            raise ClusterError(f"{node} keeps no state")
        return self.of_node[node]
