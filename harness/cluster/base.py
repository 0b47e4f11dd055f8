"""What every place offers: nodes that can be started, killed, paused, slowed down, and the links between them.

Nothing here is about DiLoCo. Another trainer comes under test by describing its nodes and writing the tape: a node that
others connect to records `listening` with its port, every node records `start`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from harness.links.client import Toxic

Recorder = Callable[..., None]
"""record(event, **fields): writes to the harness' own tape."""

Ability = Literal["kill", "restart", "throttle", "links"]


class ClusterError(Exception):
    """The cluster can't go on; the message says which node, why, and shows the last lines of its log."""


@dataclass(frozen=True)
class NodeSpec:
    """A process to run. In `argv` the parts `{incarnation}`, `{listen}` and `{connect}` are replaced at each start."""

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    listens: bool = False
    """Others connect to it: it starts first, on a port that it keeps for life."""
    connects_to: str = ""
    """The node it talks to, through a link that bears this node's own name."""
    first_start: tuple[str, ...] = ()
    """Further arguments for the first incarnation only."""


@dataclass(frozen=True)
class NodeState:
    """What is known of a node now."""

    state: Literal["running", "paused", "dead", "finished"]
    incarnation: int
    pid: int | None


class Cluster(Protocol):
    """One run's nodes. All calls come from one thread; none of them blocks for long."""

    def abilities(self) -> set[Ability]:
        """What this place can do; a scenario that needs more is refused before anything starts."""
        ...

    def start(self, nodes: Sequence[NodeSpec]) -> None:
        """Start all nodes.

        Raises:
            ClusterError: one of them did not come up.
        """
        ...

    def poll(self) -> None:
        """Supervise: notice deaths, restart what is due. Call it every 10 ms or so.

        Raises:
            ClusterError: a node died that nobody killed.
        """
        ...

    def states(self) -> dict[str, NodeState]:
        """Every node's state."""
        ...

    def kill(self, node: str, restart_after: float | None) -> int:
        """SIGKILL; the cluster itself starts it again after so many seconds. Returns the exit status (-9)."""
        ...

    def throttle(self, node: str, factor: float | None) -> None:
        """Let a node run only this share of the time; None: all of it again."""
        ...

    def address(self, link: str) -> str:
        """Where the node's side of a link listens: host:port."""
        ...

    def degrade(self, link: str, toxics: Sequence[Toxic]) -> None:
        """Put these toxics on a link.

        Raises:
            LinkError: the proxy refused, or does not say what was set.
        """
        ...

    def restore(self, link: str, toxics: Sequence[Toxic]) -> None:
        """Take these toxics off a link; harmless where they are not there."""
        ...

    def cut(self, link: str, cut: bool) -> None:
        """Take a link down (its connections break, new ones are refused), or bring it up again."""
        ...

    def residue(self) -> list[str]:
        """What of any fault is still there, in words; empty when all is undone."""
        ...

    def dump_stacks(self) -> None:
        """Have every node that runs write its threads' stacks to its log."""
        ...

    def stop(self) -> None:
        """End every node and link; can be called at any time, twice too."""
        ...
