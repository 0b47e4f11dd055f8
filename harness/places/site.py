"""One run's nodes, links and files at a place: how they begin, what goes on, and how they end."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from typing import Any

from diloco_chaos.harness.places.base import NodeSpec
from diloco_chaos.harness.places.files import NodeFiles
from diloco_chaos.harness.places.links.run_links import RunLinks
from diloco_chaos.harness.places.nodes.nodes import Nodes


class Site(ABC):
    """A place's parts for a run. Faults act on them: `diloco_chaos.harness.places.cluster.Cluster`."""

    nodes: Nodes[Any]
    links: RunLinks
    files: NodeFiles
    parts: Sequence[object] = ()
    """What has the capabilities of this place (`diloco_chaos.harness.places.capabilities`)."""

    @abstractmethod
    def start(self, nodes: Sequence[NodeSpec]) -> None:
        """Start all nodes, and whatever they need.

        Raises:
            ClusterError: one of them did not come up.
        """

    @abstractmethod
    def join(self, node: NodeSpec) -> None:
        """Start a node that was not there from the beginning, and its link."""

    def poll(self) -> None:
        """Supervise: notice deaths, restart what is due.

        Raises:
            ClusterError: a node died that nobody killed, or the place can't go on.
        """
        for node, name in self.files.reads():
            self.nodes.note_read(node, name)
        self.nodes.poll()

    def dump_stacks(self, nodes: Collection[str]) -> None:
        """Have the stacks of these nodes kept, as far as that can be done here: those of ours write them to their
        logs."""
        self.nodes.dump_stacks(nodes)

    def residue(self) -> list[str]:
        """Return what of any fault is still there, in words; empty when all is undone."""
        return [*self.nodes.residue(), *self.links.residue()]

    @abstractmethod
    def stop(self) -> None:
        """End every node and link, and remove what the run has made; can be called at any time, twice too."""
