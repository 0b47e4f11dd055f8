"""Where nodes of this machine are found: on loopback, by ports that are held for them."""

from __future__ import annotations

import socket
import sys
from collections.abc import Mapping
from typing import Any

from diloco_chaos.harness.base.processes import with_token
from diloco_chaos.harness.places.base import ClusterError, NodeSpec
from diloco_chaos.harness.places.local.family import started_as
from diloco_chaos.harness.places.local.link_server import free_port
from diloco_chaos.harness.places.local.spawning import LOOPBACK
from diloco_chaos.harness.places.nodes.nodes import Nodes
from diloco_chaos.harness.places.sockets import holds, listening
from diloco_chaos.harness.trainers.core.programs import Program, taken


class LocalAddresses:
    """Implements `diloco_chaos.harness.places.commands.Addresses`, and `Finder`."""

    def __init__(self, nodes: Nodes[Any], token: str) -> None:
        """`token`: of the run."""
        self._nodes, self._token = nodes, token
        self._held: list[socket.socket] = []

    def hold_port(self) -> int:
        """A port that nobody else gets while its node is dead: it is bound here, too, where nobody listens."""
        held = socket.socket()
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # whoever binds it next with the same may listen
        held.bind((LOOPBACK, 0))
        self._held.append(held)
        return int(held.getsockname()[1])

    def close(self) -> None:
        """Hold no port any more."""
        for held in self._held:
            held.close()

    def port_for(self, spec: NodeSpec, program: Program) -> int:
        """Return the program's own port, or one that is free where it has none."""
        if not program.port:
            return free_port()
        if why := taken(program.port):
            raise ClusterError(f"{spec.name}: {why}")
        return program.port

    def found_at(self, node: str) -> str:
        """Return loopback, as for all others."""
        return LOOPBACK

    def seen_at(self, node: str) -> tuple[str, int]:
        """Return loopback and the same port as nodes use."""
        return LOOPBACK, self._nodes.ports.get(node, 0)

    def words(self, node: str) -> Mapping[str, str]:
        """This interpreter, on loopback."""
        return {"python": sys.executable, "host": LOOPBACK}

    def listener(self, host: str, port: int) -> str:
        """Return the node that listens there, by the process that holds the socket; empty: none of this run does."""
        if not (sockets := listening(host, port)):
            return ""
        return next((node for carrier in with_token(self._token)
                     if (node := started_as(carrier.pid).rpartition(".")[0]) and holds(carrier.pid, sockets)), "")

    def met_at(self, address: str) -> str:
        """It is one of version 4."""
        return address
