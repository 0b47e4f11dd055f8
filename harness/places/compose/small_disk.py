"""A small disk for one node's state: a tmpfs, and a container that keeps it mounted while the node is down."""

from __future__ import annotations

import io
import shlex
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from diloco_chaos.harness.places.compose.engine import asked
from diloco_chaos.harness.places.compose.project import Project

_NAME = "disk"
_AT, _FILLING = Path("/disk"), "/disk/.filling"


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
        """Remove them."""
        self._do(f"rm -f {_FILLING}")

    @property
    def filled(self) -> bool:
        """Whether they are there."""
        return bool(self._do(f"ls {_FILLING} 2>/dev/null || true"))

    def files(self) -> dict[str, int]:
        """Name and size of every file."""
        listed = (line.partition(" ") for line in self._do(f"stat -c '%s %n' {_AT}/*").splitlines())
        return {Path(name).name: int(size) for size, _, name in listed if size.isdigit()}

    def alter(self, name: str, change: Callable[[bytes], bytes | None]) -> None:
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
