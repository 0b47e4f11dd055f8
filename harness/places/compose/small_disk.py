"""A small disk for one node's state: a tmpfs, and a container that keeps it mounted while the node is down."""

from __future__ import annotations

import io
import shlex
import tarfile
from pathlib import Path
from typing import Any

from diloco_chaos.harness.places.base import ClusterError, NodeSpec
from diloco_chaos.harness.places.compose.engine import asked
from diloco_chaos.harness.places.compose.project import Project
from diloco_chaos.harness.places.files import Change, RunFiles
from diloco_chaos.harness.places.nodes.nodes import FULL_DISK, Nodes
from diloco_chaos.harness.trainers.core.memory import Corruption

_NAME = "disk"
_AT, _FILLING = Path("/disk"), "/disk/.filling"


class SmallDisks:
    """A run's one, where it has one. Implements `diloco_chaos.harness.places.files.NodeFiles`, with the run's folder
    for all other nodes, and `diloco_chaos.harness.places.capabilities.Disks`."""

    def __init__(self, project: Project, run: Path, nodes: Nodes[Any]) -> None:
        self._project, self._run, self._nodes = project, run, nodes
        self._others = RunFiles(run, nodes)
        self._small: SmallDisk | None = None

    def make(self, size: int) -> None:
        """Make the small disk, of so many bytes."""
        self._small = SmallDisk(self._project, size)

    def mounts(self, spec: NodeSpec) -> list[Any]:
        """Return the mounts that a node's container needs to have its state there."""
        return [self._small.mount(self._run / spec.state)] if spec.disk and self._small is not None else []

    def state(self, node: str) -> dict[str, int]:
        """Return a node's files of state; those on a small disk are seen through the container that keeps it."""
        return self._disk().files() if self._nodes[node].spec.disk else self._others.state(node)

    def alter(self, node: str, name: str, change: Change) -> bool:
        """Alter a node's file of state; one on a small disk is rewritten through the container that keeps it."""
        if not self._nodes[node].spec.disk:
            return self._others.alter(node, name, change)
        self._disk().alter(name, change)
        return False

    def reads(self) -> list[tuple[str, str]]:
        """Return what was read since the last call of files in the run's folder."""
        return self._others.reads()

    def tape_size(self, node: str) -> int:
        """Return the bytes of the node's tape, which is in the run's folder."""
        return self._others.tape_size(node)

    def corrupt_memory(self, node: str, corruption: Corruption) -> None:
        """Corrupt a process' memory by an order in the run's folder."""
        self._others.corrupt_memory(node, corruption)

    def fill_disk(self, node: str, restart_after: float) -> int:
        """Write zeros until there is no space."""
        self._nodes.expect_no_space(node, FULL_DISK, restart_after)
        return self._disk().fill()

    def empty_disk(self, node: str) -> None:
        """Remove the zeros."""
        self._disk().empty()
        self._nodes.space_again(node, FULL_DISK)

    def residue(self) -> list[str]:
        """Return what fills it, in words."""
        return ["the small disk is full"] if self._small is not None and self._small.filled else []

    def _disk(self) -> SmallDisk:
        if self._small is None:
            raise ClusterError("no node of this run has a small disk")
        return self._small


class SmallDisk:
    """See the module."""

    def __init__(self, project: Project, size: int) -> None:
        """`size` in bytes.

        Raises:
            EngineError: the engine refused.
        """
        uid, _, gid = project.user.partition(":")
        project.volume(_NAME, type="tmpfs", device="tmpfs", o=f"size={size},uid={uid},gid={gid},mode=0755")
        self._owner = (int(uid), int(gid))
        self._project = project
        self._keeper: Any = project.container(
            _NAME, _NAME, project.stated("syncer") | {"user": project.user}, ["sleep", "infinity"],
            mounts=[project.mount(_NAME, _AT)])

    def mount(self, target: Path) -> Any:
        """The disk at a place in a container."""
        return self._project.mount(_NAME, target)

    def fill(self) -> int:
        """Write zeros until nothing fits any more; how many bytes that were."""
        self._do(f"cat /dev/zero > {_FILLING}")
        return int(self._do(f"stat -c %s {_FILLING}"))

    def empty(self) -> None:
        """Remove the zeros."""
        self._do(f"rm -f {_FILLING}")

    @property
    def filled(self) -> bool:
        """Return whether the zeros are there."""
        return bool(self._do(f"ls {_FILLING} 2>/dev/null || true"))

    def files(self) -> dict[str, int]:
        """Name and size of every file."""
        listed = (line.partition(" ") for line in self._do(f"stat -c '%s %n' {_AT}/*").splitlines())
        return {Path(name).name: int(size) for size, _, name in listed if size.isdigit()}

    def alter(self, name: str, change: Change) -> None:
        """Replace a file's content; None removes it."""
        with asked("read from the small disk"):
            changed = change(self._keeper.exec_run(["cat", str(_AT / name)]).output)
        if changed is None:
            self._do(f"rm -f {shlex.quote(str(_AT / name))}")
            return
        packed, entry = io.BytesIO(), tarfile.TarInfo(name)
        entry.size, (entry.uid, entry.gid) = len(changed), self._owner
        with tarfile.open(fileobj=packed, mode="w") as archive:
            archive.addfile(entry, io.BytesIO(changed))
        with asked("write to the small disk"):
            self._keeper.put_archive(str(_AT), packed.getvalue())

    def _do(self, command: str) -> str:
        with asked("use the small disk"):
            return str(self._keeper.exec_run(["sh", "-c", command]).output.decode(errors="replace").strip())
