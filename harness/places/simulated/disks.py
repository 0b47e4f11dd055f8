"""The simulated disks of nodes that keep a state."""

from __future__ import annotations

from dataclasses import replace

from diloco_chaos.harness.places.base import ClusterError
from diloco_chaos.harness.places.files import Change
from diloco_chaos.harness.places.nodes.nodes import FULL_DISK, Nodes
from diloco_chaos.harness.places.simulated.process import VirtualProcess
from diloco_chaos.harness.preload.page import Hits, Rule
from diloco_chaos.harness.record.storage.disk import STATE
from diloco_chaos.harness.simulation.client import SimulatedClient
from diloco_chaos.harness.simulation.disk import MemoryDisk
from diloco_chaos.harness.trainers.core.memory import Corruption
from diloco_chaos.harness.trainers.core.programs import Program, filled

BACK_AFTER_S = 1.0
"""A node that ended by an error of its disk is started again after so long."""
RUN = "/run"
"""Stands for the run's folder in the paths of simulated files."""


class SimulatedDisks:
    """Implements `diloco_chaos.harness.places.files.NodeFiles`, and `Disks` and `CallFaults` of
    `diloco_chaos.harness.places.capabilities`."""

    def __init__(self, nodes: Nodes[VirtualProcess]) -> None:
        self._nodes = nodes
        self.of_node: dict[str, MemoryDisk] = {}
        self._done: dict[tuple[str, str], tuple[Hits, list[str]]] = {}

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

    def arm(self, node: str, fault: str, rule: Rule) -> str:
        """Let a rule hold for its disk."""
        if node not in self.of_node:
            return f"{node}: a simulated node that keeps no state makes no calls on files"
        self._done.pop((node, fault), None)
        whole = filled(rule.pattern, Program("").own(RUN, node), {})
        self.of_node[node].faults.arm(fault, replace(rule, pattern=whole if whole.startswith("/") else f"*/{whole}"))
        if rule.action == "error":  # it does not go on without its files
            self._nodes.expect_no_space(node, fault, BACK_AFTER_S)
        return ""

    def disarm(self, node: str, fault: str) -> None:
        """Keep what it has done; a call that hangs returns."""
        if (done := self.hits(node, fault)) is not None and (node, fault) not in self._done:
            self._done[node, fault] = done
            self.of_node[node].faults.disarm(fault)
            self._nodes.space_again(node, fault)
            if not self.of_node[node].faults.hang_lasts:
                self._nodes[node].process.simulated.call_returns()

    def hits(self, node: str, fault: str) -> tuple[Hits, list[str]] | None:
        """Return what was kept, or what it has done so far, with files by their names in the run's folder."""
        disk = self.of_node.get(node)
        if disk is None or (node, fault) in self._done or not disk.faults.holds(fault):
            return self._done.get((node, fault))
        hits, others = disk.faults.hits(fault)
        first, *others = [name.removeprefix(f"{RUN}/") for name in (hits.first, *others)]
        return replace(hits, first=first), others

    def new(self, node: str) -> MemoryDisk:
        """Return a node's disk, an empty one the first time."""
        return self.of_node.setdefault(node, MemoryDisk(f"{RUN}/{STATE}"))

    def _disk(self, node: str) -> MemoryDisk:
        if node not in self.of_node:
            raise ClusterError(f"{node} keeps no state")
        return self.of_node[node]
