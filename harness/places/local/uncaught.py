"""What no preloaded library catches: programs that are linked statically, and connections that pass no link.

A connection between two processes of this machine is in /proc/net/tcp once for each end; who holds one, /proc/PID/fd
says.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from contextlib import suppress

from diloco_chaos.harness.base.processes import Carriers
from diloco_chaos.harness.places.local.family import started_as
from diloco_chaos.harness.places.sockets import established
from diloco_chaos.harness.trainers.core.elf import is_static

_STATIC = ", which is linked statically"


class Uncaught:
    """Looks at the processes of a run's commands on this machine. Implements
    `diloco_chaos.harness.places.capabilities.SeesBeside`."""

    def __init__(self, token: str) -> None:
        """`token`: the run's."""
        self._token, self._carriers = token, Carriers(token)
        self._told: set[tuple[str, str]] = set()

    def beside(self) -> list[tuple[str, str, str]]:
        """Return the connections between processes of two nodes."""
        holders = {socket: (node, pid) for pid, node in self._nodes(Carriers(self._token))
                   for socket in _sockets_of(pid)}
        standing = established()
        pairs = {}
        for (here, there), socket in standing.items():
            ends = [holders.get(name) for name in (socket, standing.get((there, here), ""))]
            if None not in ends and ends[0][0] < ends[1][0]:  # type: ignore[index]
                (one, first), (other, second) = ends  # type: ignore[misc]
                pairs[one, other] = max(_name(first), _name(second), key=lambda name: name.endswith(_STATIC))
        return [(one, other, program) for (one, other), program in sorted(pairs.items())]

    def new_static(self, caught: Collection[str]) -> Iterator[tuple[str, str]]:
        """Yield the node and the program for each that is linked statically, of these nodes, once."""
        for pid, node in self._nodes(self._carriers):
            with suppress(OSError):
                program = os.readlink(f"/proc/{pid}/exe")
                if node in caught and (node, program) not in self._told and is_static(f"/proc/{pid}/exe"):
                    self._told.add((node, program))
                    yield node, program

    def _nodes(self, carriers: Carriers) -> Iterator[tuple[int, str]]:
        for pid in carriers.among(()):
            if node := started_as(pid).rpartition(".")[0]:
                yield pid, node


def _sockets_of(pid: int) -> Iterator[str]:
    with suppress(OSError):
        for entry in os.listdir(f"/proc/{pid}/fd"):
            with suppress(OSError):  # closed since
                if (name := os.readlink(f"/proc/{pid}/fd/{entry}")).startswith("socket:"):
                    yield name


def _name(pid: int) -> str:
    """Return what a process runs, and whether that is linked statically."""
    try:
        program = os.readlink(f"/proc/{pid}/exe").rpartition("/")[2]
    except OSError:
        return "a program"
    return f"{program}{_STATIC}" if is_static(f"/proc/{pid}/exe") else program
