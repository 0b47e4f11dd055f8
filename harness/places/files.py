"""The files from which nodes go on, and orders for their memory: in the run's folder, where nodes write there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from diloco_chaos.harness.places.base import ClusterError
from diloco_chaos.harness.places.nodes.nodes import Nodes
from diloco_chaos.harness.trainers.core import memory
from diloco_chaos.harness.trainers.core.memory import Corruption

Change = Callable[[bytes], bytes | None]
"""A file's content -> its new one; None: it is removed."""


class NodeFiles(Protocol):
    """The files of a run's nodes, at one place."""

    def state(self, node: str) -> dict[str, int]:
        """Name and size in bytes of the files from which a node goes on."""
        ...

    def alter(self, node: str, name: str, change: Change) -> None:
        """Replace a file of state's content, or remove it."""
        ...

    def tape_size(self, node: str) -> int:
        """Bytes of the tape that the node's process writes."""
        ...

    def corrupt_memory(self, node: str, corruption: Corruption) -> None:
        """Have values in a training process' memory fail."""
        ...


def tape_size(run: Path, nodes: Nodes[Any], node: str) -> int:
    """Bytes of the tape of a node's newest incarnation, as far as it is in the run's folder."""
    path = run / "tape" / f"{node}.{nodes[node].number}.jsonl"
    return path.stat().st_size if path.exists() else 0


class RunFiles:
    """Implements `NodeFiles`."""

    def __init__(self, run: Path, nodes: Nodes[Any]) -> None:
        """`run`: the run's folder."""
        self._run, self._nodes = run, nodes

    def state(self, node: str) -> dict[str, int]:
        """The files in its folder of state, and below it; links are none of them."""
        folder = self._folder(node)
        return {str(path.relative_to(folder)): path.stat().st_size for path in sorted(folder.rglob("*"))
                if path.is_file() and not path.is_symlink()}

    def alter(self, node: str, name: str, change: Change) -> None:
        """Rewrite or remove it."""
        path = self._folder(node) / name
        changed = change(path.read_bytes())
        if changed is None:
            path.unlink()
        else:
            path.write_bytes(changed)

    def tape_size(self, node: str) -> int:
        """Return the bytes of the tape as it is here."""
        return tape_size(self._run, self._nodes, node)

    def corrupt_memory(self, node: str, corruption: Corruption) -> None:
        """An order, which the node carries out."""
        memory.order(self._run, node, self._nodes[node].number, corruption)

    def _folder(self, node: str) -> Path:
        spec = self._nodes[node].spec
        if not spec.state:
            raise ClusterError(f"{node} keeps no state")
        folder = self._run / spec.state
        if not folder.resolve().is_relative_to(self._run.resolve()):
            raise ClusterError(f"{node}: its folder of state leads out of the run's, to {folder.resolve()}: nothing is "
                               f"damaged there")
        return folder
