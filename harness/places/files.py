"""The files from which nodes go on, and orders for their memory: in the run's folder, where nodes write there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from diloco_chaos.harness.places.base import ClusterError
from diloco_chaos.harness.places.nodes.nodes import Nodes
from diloco_chaos.harness.record.storage.reads import Reads
from diloco_chaos.harness.trainers.core import memory
from diloco_chaos.harness.trainers.core.memory import Corruption

Change = Callable[[bytes], bytes | None]
"""A file's content -> its new one; None: it is removed."""


class NodeFiles(Protocol):
    """The files of a run's nodes, at one place."""

    def state(self, node: str) -> dict[str, int]:
        """Name and size in bytes of the files from which a node goes on; the newest first, where that is known."""
        ...

    def alter(self, node: str, name: str, change: Change) -> bool:
        """Replace a file of state's content, or remove it. Return whether `reads` will tell who reads it from then
        on."""
        ...

    def reads(self) -> list[tuple[str, str]]:
        """Return (node, name) of the files that were altered and have been read since the last call."""
        ...

    def tape_size(self, node: str) -> int:
        """Bytes of the tape that the node's process writes."""
        ...

    def corrupt_memory(self, node: str, corruption: Corruption) -> None:
        """Have values in a training process' memory fail."""
        ...


def newest_first(folder: Path) -> dict[str, int]:
    """Name and size in bytes of the files in a folder and below it, the newest first; links are none of them."""
    files = {path: path.stat() for path in sorted(folder.rglob("*"), reverse=True)
             if path.is_file() and not path.is_symlink()}
    ranked = sorted(files.items(), key=lambda item: -item[1].st_mtime_ns)
    return {str(path.relative_to(folder)): status.st_size for path, status in ranked}


def tape_size(run: Path, nodes: Nodes[Any], node: str) -> int:
    """Bytes of the tape of a node's newest incarnation, as far as it is in the run's folder."""
    path = run / "tape" / f"{node}.{nodes[node].number}.jsonl"
    return path.stat().st_size if path.exists() else 0


class RunFiles:
    """Implements `NodeFiles`."""

    def __init__(self, run: Path, nodes: Nodes[Any]) -> None:
        """`run`: the run's folder."""
        self._run, self._nodes = run, nodes
        self._reads: Reads[tuple[str, str]] = Reads()

    def state(self, node: str) -> dict[str, int]:
        """The files in its folder of state, and below it; links are none of them."""
        with self._reads.ignored():
            return newest_first(self._folder(node))

    def alter(self, node: str, name: str, change: Change) -> bool:
        """Rewrite or remove it, and watch who reads it then."""
        path = self._folder(node) / name
        with self._reads.ignored():
            changed = change(path.read_bytes())
            if changed is None:
                path.unlink()
            else:
                path.write_bytes(changed)
        return self._reads.watch(path, (node, name))

    def reads(self) -> list[tuple[str, str]]:
        """Return what was read since the last call, whoever did."""
        return self._reads.new()

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
