"""Where nodes in containers are found: on the run's internal network, by their names."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from diloco_chaos.harness.places.base import NodeSpec
from diloco_chaos.harness.places.compose.container import ContainerProcess
from diloco_chaos.harness.places.compose.project import Project
from diloco_chaos.harness.places.nodes.incarnation import Incarnation
from diloco_chaos.harness.places.nodes.nodes import Nodes
from diloco_chaos.harness.places.sockets import takes
from diloco_chaos.harness.trainers.core.programs import Program

ANY = "0.0.0.0"  # noqa: S104 - of a container's own network, which is internal
LISTEN = 7000
PYTHON = "python3"


class ContainerAddresses:
    """Implements `diloco_chaos.harness.places.commands.Addresses`, and `Finder`."""

    def __init__(self, project: Project, nodes: Nodes[ContainerProcess], links_at: Callable[[], str]) -> None:
        """`links_at`: the address of the link server among the nodes."""
        self._project, self._nodes, self._links_at = project, nodes, links_at
        self._known: dict[str, tuple[int, str]] = {}  # node -> (incarnation, its address among the nodes)

    def port_for(self, spec: NodeSpec, program: Program) -> int:
        """Return the program's own port, or always the same one: each container has a network address of its own."""
        return program.port or LISTEN

    def found_at(self, node: str) -> str:
        """Return the node's name: other nodes find it by that."""
        return node

    def seen_at(self, node: str) -> tuple[str, int]:
        """This machine reaches it on the internal network, too."""
        return self._project.address(self._nodes[node].process.container), self._nodes.ports.get(node, 0)

    def words(self, node: str) -> Mapping[str, str]:
        """Return its image's interpreter, and the address of all its interfaces."""
        return {"python": PYTHON, "host": ANY}

    def listener(self, host: str, port: int) -> str:
        """Return the node that has this address and listens there; empty: none does."""
        return next((node.name for node in self._nodes.values() if node.alive and self._address(node) == host
                     and takes(node.process.pid, port) is not False), "")

    def met_at(self, address: str) -> str:
        """Return the link server's address among the nodes, with the same port."""
        return f"{self._links_at()}:{address.rpartition(':')[2]}"

    def forget(self, node: str) -> None:
        """It may have another address from now on."""
        self._known.pop(node, None)

    def _address(self, node: Incarnation[ContainerProcess]) -> str:
        """Return the IP address at which other nodes find it; empty while it is off their network."""
        number, address = self._known.get(node.name, (-1, ""))
        if number != node.number or not address:
            address = self._project.address(node.process.container)
            self._known[node.name] = node.number, address
        return address
