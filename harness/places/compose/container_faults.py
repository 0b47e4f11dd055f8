"""What happens to a node's container, or in it: its memory is used up, it is taken off the network, its main thread
stands, one of its processes is signalled."""

from __future__ import annotations

import signal
from contextlib import suppress
from pathlib import Path

from diloco_chaos.harness.base.units import shortened
from diloco_chaos.harness.places.base import ClusterError
from diloco_chaos.harness.places.compose.addresses import ContainerAddresses
from diloco_chaos.harness.places.compose.container import ContainerProcess
from diloco_chaos.harness.places.compose.project import Project
from diloco_chaos.harness.places.links.run_links import RunLinks
from diloco_chaos.harness.places.local.hangs import Called, Hangs
from diloco_chaos.harness.places.nodes import called
from diloco_chaos.harness.places.nodes.nodes import Nodes

_HEADROOM = 12 << 20
_SHOWN = 200


class ContainerMemory:
    """Implements `diloco_chaos.harness.places.capabilities.MemoryLimits`."""

    def __init__(self, nodes: Nodes[ContainerProcess]) -> None:
        self._nodes = nodes

    def exhaust_memory(self, node: str, restart_after: float | None) -> None:
        """A limit just above what it uses, and a second process that asks for more: the kernel kills the largest."""
        current = self._nodes[node]
        used = _anonymous(current.process.pid) if current.alive else None
        if used is None:
            return  # it is gone: nothing is taken from it
        current.expect_exit(restart_after)
        container, limit = current.process, used + _HEADROOM
        container.in_background(lambda: container.squeeze(limit))
        container.in_background(lambda: container.execute("python3", "-c", f"b = bytearray({4 * _HEADROOM})"))


class ContainerNetwork:
    """Implements `diloco_chaos.harness.places.capabilities.Network`."""

    def __init__(self, project: Project, nodes: Nodes[ContainerProcess], links: RunLinks,
                 addresses: ContainerAddresses) -> None:
        self._project, self._nodes, self._links, self._addresses = project, nodes, links, addresses

    def disconnect(self, node: str, off: bool) -> None:
        """Take a node off the internal network, or put it back under its name."""
        with self._links.lock:
            self._addresses.forget(node)  # it may get another one
            self._project.attach(self._nodes[node].process.container, node, not off)

    def residue(self) -> list[str]:
        """Return which nodes are off the network, in words."""
        return [f"{node.name} is off the network" for node in self._nodes.values()
                if node.alive and not self._project.attached(node.process.container)]


class ContainerProcesses:
    """Implements `diloco_chaos.harness.places.capabilities.InnerProcesses`, from within: as the same user."""

    def __init__(self, nodes: Nodes[ContainerProcess]) -> None:
        self._nodes = nodes

    def signal_process(self, node: str, process: str, number: signal.Signals) -> list[int]:
        """Signal a process of a command; its image must have `python3`."""
        running, (name, _, which) = self._nodes[node], process.rpartition("-")
        if running.spec.program is None or not running.alive:
            return []
        status, output = running.process.execute("python3", "-c", Path(called.__file__).read_text(),
                                                 running.spec.program.processes[name], which, str(int(number)))
        if status and running.process.ended() is None:
            raise ClusterError(f"{node}: its image needs `python3`, which finds {process} there: "
                               f"{shortened(output, _SHOWN)}")
        return [int(pid) for pid in output.split()] if not status else []


class ContainerHangs(Hangs):
    """Main threads of first processes in containers: those that these have started have other pids from here."""

    def _called(self, node: str, process: str) -> Called | None:
        running = self._nodes[node]
        return running.process if running.alive else None


def _anonymous(pid: int) -> int | None:
    """Bytes of memory that a process has for itself, what the kernel can't take back; None where it is gone."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) << 10
    return None
