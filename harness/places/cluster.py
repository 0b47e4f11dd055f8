"""One run's nodes at a place, as faults and the experiment see them: what can be done to nodes, links and files."""

from __future__ import annotations

import signal
from collections.abc import Collection, Sequence
from typing import TypeVar

from diloco_chaos.harness.links.toxic import Toxic
from diloco_chaos.harness.places.base import STOP_TIMEOUT_S, NodeSpec, NodeState, Preemption
from diloco_chaos.harness.places.files import Change
from diloco_chaos.harness.places.site import Site
from diloco_chaos.harness.trainers.core.memory import Corruption

C = TypeVar("C")


class Cluster:
    """A run's nodes, links and files of state, as every place has them. All calls come from one thread; none of them
    blocks for long.

    What lasts (a pause, a toxic, a limit) is written to the run's undo log before it is done.
    """

    def __init__(self, site: Site) -> None:
        self.site = site

    def having(self, capability: type[C]) -> C | None:
        """Return the part that has something that only some places have; None: this place does not have it."""
        return next((part for part in self.site.parts if isinstance(part, capability)), None)

    # -- the beginning, and what goes on -------------------------------------------------------------------------------

    def start(self, nodes: Sequence[NodeSpec]) -> None:
        """Start all nodes.

        Raises:
            ClusterError: one of them did not come up.
        """
        self.site.start(nodes)

    def join(self, node: NodeSpec) -> None:
        """Start a node that was not there from the beginning, and its link."""
        self.site.join(node)

    def poll(self) -> None:
        """Supervise: notice deaths, restart what is due. Call it every 10 ms or so.

        Raises:
            ClusterError: a node died that nobody killed.
        """
        self.site.poll()

    def states(self) -> dict[str, NodeState]:
        """Return every node's state, by the node's name."""
        return self.site.nodes.states()

    # -- processes: what is done to a node that is gone already is done to nobody --------------------------------------

    def kill(self, node: str, restart_after: float | None) -> None:
        """SIGKILL, also to one that stands still; it is started again after so many seconds. `exit` on the tape tells
        its status."""
        self.site.nodes[node].end(signal.SIGKILL, restart_after)

    def spoil(self, node: str, after_start: float, restart_after: float | None, times: int | None = None,
              lasts: float | None = None) -> None:
        """Kill the process of a node now, and each later one so many seconds after its start, whoever started it.
        `restart_after`: None leaves that to the node's own scheduler. `times`: so many processes, None: all. `lasts`:
        for so many seconds, None: to the end of the run."""
        self.site.nodes.spoil(node, after_start, restart_after, times, lasts)

    def mend(self, node: str) -> None:
        """Let the process of a node live that was spoiled, and those that follow."""
        self.site.nodes.mend(node)

    def retire(self, node: str) -> None:
        """SIGKILL, if it is there; it is never started again, neither by the harness nor by its own scheduler."""
        self.site.nodes.retire(node)

    def terminate(self, node: str, restart_after: float | None, number: signal.Signals = signal.SIGTERM,
                  grace: float = STOP_TIMEOUT_S) -> None:
        """Ask it to end by this signal, as `kill` else; SIGKILL follows for a node that does not end within `grace`
        seconds."""
        self.site.nodes[node].end(number, restart_after, grace)

    def preempt(self, node: str, order: Preemption) -> None:
        """Give it notice, ask it to end, end it; its successor may start while it still lives."""
        self.site.nodes.preempt(node, order)

    def pause(self, node: str) -> None:
        """Stop the process where it is (SIGSTOP); one that stopped itself is taken over."""
        self.site.nodes[node].pause()

    def resume(self, node: str) -> None:
        """Let the process that was paused go on; harmless where it is gone."""
        self.site.nodes[node].resume()

    def throttle(self, node: str, share: float | None, spread: float = 0.0, seed: int = 0) -> None:
        """Let a node run only this share of the time, varied by up to `spread` from period to period; None: all of it
        again."""
        self.site.nodes[node].throttle(share, spread, seed)

    def supersede(self, node: str) -> None:
        """Stop the process and start the next incarnation beside it, as after a partition that looked like a death."""
        self.site.nodes.supersede(node)

    def revive(self, node: str) -> None:
        """Let the superseded process go on: a stale incarnation comes back."""
        self.site.nodes.revive(node)

    def limit_writes(self, node: str, size: int, restart_after: float) -> None:
        """Let the process write no file beyond this size (bytes). It may die of it; then it is started again."""
        self.site.nodes[node].limit_writes(size, restart_after)

    def unlimit_writes(self, node: str) -> None:
        """Take that limit back; harmless where the process is gone."""
        self.site.nodes.unlimit_writes(node)

    def corrupt_memory(self, node: str, corruption: Corruption) -> None:
        """Have values in a training process' memory fail, before its next inner step; `corrupted` on its tape tells."""
        self.site.files.corrupt_memory(node, corruption)

    # -- state: the files of a node that is down -----------------------------------------------------------------------

    def wait_gone(self, node: str) -> None:
        """Wait until the process that was killed is gone.

        Raises:
            ClusterError: it is still there after two seconds.
        """
        self.site.nodes.wait_gone(node)

    def state_files(self, node: str) -> dict[str, int]:
        """Name and size in bytes of the files from which a node goes on; the newest first, where that is known."""
        return self.site.files.state(node)

    def tape_size(self, node: str) -> int:
        """Bytes of the tape that the node's process writes."""
        return self.site.files.tape_size(node)

    def alter(self, node: str, name: str, change: Change) -> bool:
        """Replace a state file's content; None removes it. Return whether `file_read` will tell of who reads it."""
        return self.site.files.alter(node, name, change)

    # -- links ---------------------------------------------------------------------------------------------------------

    def links_of(self, node: str) -> list[str]:
        """The link of a node that connects; all links of a node that others connect to; a link by its own name."""
        return self.site.links.of(node)

    def address(self, link: str) -> str:
        """Return the address (host:port) at which questions about a link are asked from here."""
        return self.site.links.asked_at(link)

    def degrade(self, link: str, toxics: Sequence[Toxic]) -> None:
        """Put these toxics on a link.

        Raises:
            LinkError: the proxy refused, or does not say what was set.
        """
        self.site.links.degrade(link, toxics)

    def restore(self, link: str, toxics: Sequence[Toxic]) -> None:
        """Take these toxics off a link; harmless where they are not there."""
        self.site.links.restore(link, toxics)

    def disable_link(self, link: str) -> None:
        """Take a link down: its connections break, new ones are refused."""
        self.site.links.disable(link)

    def enable_link(self, link: str) -> None:
        """Bring it up again, at the same address."""
        self.site.links.enable(link)

    # -- the end -------------------------------------------------------------------------------------------------------

    def residue(self) -> list[str]:
        """Return what of any fault is still there, in words; empty when all is undone."""
        return self.site.residue()

    def dump_stacks(self, nodes: Collection[str]) -> None:
        """Have the stacks of these nodes kept, in their logs or beside them, as far as the place can. It takes two
        seconds at the most."""
        self.site.dump_stacks(nodes)

    def stop(self) -> None:
        """End every node and link; can be called at any time, twice too."""
        self.site.stop()
