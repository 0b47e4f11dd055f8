"""The files of nodes on other machines, through their agents."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from diloco_chaos.harness.places.files import Change, tape_size
from diloco_chaos.harness.places.nodes.nodes import Nodes
from diloco_chaos.harness.places.remote.hosts import Hosts
from diloco_chaos.harness.trainers.core import memory
from diloco_chaos.harness.trainers.core.memory import Corruption


class AgentFiles:
    """Implements `diloco_chaos.harness.places.files.NodeFiles`."""

    def __init__(self, run: Path, nodes: Nodes[Any], hosts: Hosts,
                 folder_there: Callable[[str], str] = lambda state: state, ignored: str = "") -> None:
        """`folder_there`: a node's folder of state as its host knows it; one that is not absolute is below the run's.
        `ignored`: a file there that is none of the node's."""
        self._run, self._nodes, self._hosts = run, nodes, hosts
        self._folder_there, self._ignored = folder_there, ignored

    def state(self, node: str) -> dict[str, int]:
        """Return a node's files of state as its agent sees them."""
        files = self._hosts[node].agent.ask("list", path=self.folder(node))["files"]
        return {str(name): int(size) for name, size in files.items() if name != self._ignored}

    def alter(self, node: str, name: str, change: Change) -> bool:
        """Alter a file of state through the node's agent."""
        agent, path = self._hosts[node].agent, f"{self.folder(node)}/{name}"
        changed = change(agent.fetch("get", path=path)[1])
        if changed is None:
            agent.ask("remove", path=path)
        else:
            agent.ask("put", changed, path=path)
        return False

    def reads(self) -> list[tuple[str, str]]:
        """Return nothing: who reads files there is not known."""
        return []

    def tape_size(self, node: str) -> int:
        """Return the bytes of the tape, as far as it has come here."""
        return tape_size(self._run, self._nodes, node)

    def corrupt_memory(self, node: str, corruption: Corruption) -> None:
        """An order, which its agent puts into the run's folder there."""
        name, content = memory.written(node, self._nodes[node].number, corruption)
        self._hosts[node].agent.ask("put", content, path=name)

    def folder(self, node: str) -> str:
        """Return a node's folder of state, as it is named there."""
        return self._folder_there(self._nodes[node].spec.state)
