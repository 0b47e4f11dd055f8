"""What every place offers: nodes that can be started, killed, paused, slowed down, and the links between them.

Nothing here is about DiLoCo. Another trainer comes under test by describing its nodes and writing the tape: a node that
others connect to records `listening` with its port, every node records `start`.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, get_args, runtime_checkable

from diloco_chaos.harness.base.errors import UserError
from diloco_chaos.harness.base.machine import Sample
from diloco_chaos.harness.links.probe import Sounding
from diloco_chaos.harness.links.toxic import Toxic
from diloco_chaos.harness.trainers.core.memory import Corruption
from diloco_chaos.harness.trainers.core.programs import Program, link_name

Recorder = Callable[..., None]
"""record(event, **fields): writes to the harness' own tape."""

Ability = Literal["kill", "terminate", "restart", "pause", "throttle", "links", "state", "limit_writes", "supersede",
                  "join", "corrupt_memory", "exhaust_memory", "disconnect", "fill_disk", "restart_links",
                  "restart_engine", "lose_power", "jump_clock", "share_links", "signal_process", "delete_pod", "evict",
                  "drain_node", "requeue", "node_power_loss", "node_partition", "restart_control_plane"]
ABILITIES: tuple[Ability, ...] = get_args(Ability)
EVERYWHERE: frozenset[Ability] = frozenset({
    "kill", "terminate", "restart", "pause", "throttle", "links", "state", "limit_writes", "supersede", "join",
    "corrupt_memory"})
"""What every cluster can do. What else a place can do, it says itself."""
OF_MACHINES: frozenset[Ability] = frozenset({"drain_node", "node_power_loss", "node_partition"})
"""What hits a whole machine: who is meant by it shares none with the others."""
_SIGNALS = {number.value: number.name for number in signal.Signals}


def status_words(status: int) -> str:
    """An exit status as people read it; negative: the signal that ended it."""
    return f"killed by {_SIGNALS.get(-status, f'signal {-status}')}" if status < 0 else f"exit code {status}"


class ClusterError(UserError):
    """The cluster can't go on; the message says which node, why, and shows the last lines of its log."""


@dataclass(frozen=True)
class NodeSpec:
    """A process to run. Some parts of `argv` are replaced at each start: see `command`."""

    name: str
    argv: tuple[str, ...]
    listens: bool = False
    """Others connect to it: it starts first, on a port that it keeps for life."""
    connects_to: str = ""
    """The node it talks to, through a link that bears this node's own name."""
    incarnation: int = 0
    """Number of the first incarnation: another one where a run goes on that was ended."""
    failpoints: tuple[str, ...] = ()
    """Where it is to stop, as arguments of `--failpoint`."""
    state: str = ""
    """The folder, relative to the run's, of the files from which it goes on after a restart; empty: it has none."""
    disk: int = 0
    """Bytes of a small disk of its own for `state`; 0: it lies on the run's."""
    reads: tuple[Path, ...] = ()
    """Files beyond the run's folder that it must be able to read."""
    program: Program | None = None
    """It is a command that somebody wrote; None: a process of ours."""
    epoch: float = 0.0
    """The run's beginning on the harness' CLOCK_MONOTONIC, seconds."""
    machine: str = ""
    """It shares its machine with none that has another word here, where a place has several."""

    @property
    def links(self) -> dict[str, str]:
        """Link -> the node that it leads to. The only one of a process of ours bears its own name."""
        if self.program is not None:
            return {link_name(self.name, to): to for to in (*self.program.talks_to, *self.program.meets)}
        return {self.name: self.connects_to} if self.connects_to else {}

    def command(self, incarnation: int, *, python: str, host: str, listen: int, connect: str,
                ahead: float = 0.0) -> list[str]:
        """`argv` of an incarnation: `{python}` the interpreter, `{host}` and `{listen}` where it is to listen,
        `{connect}` the address (host:port) that it is to connect to, `{incarnation}` its number, `{epoch}` the run's
        beginning on the node's clock, which is `ahead` of the harness' by so many seconds."""
        filled = {"{incarnation}": str(incarnation), "{python}": python, "{host}": host, "{listen}": str(listen),
                  "{connect}": connect, "{epoch}": repr(self.epoch + ahead)}
        return [*(filled.get(part, part) for part in self.argv),
                *(part for point in self.failpoints for part in ("--failpoint", point))]


@dataclass(frozen=True)
class NodeState:
    """What is known of a node now."""

    state: Literal["running", "paused", "dead", "finished"]
    incarnation: int
    pid: int | None


class Cluster(Protocol):
    """One run's nodes: what every backend has. All calls come from one thread; none of them blocks for long.

    What lasts (a pause, a toxic, a limit) is written to the run's undo log before it is done. What only some backends
    have is a protocol of its own: `CAPABILITIES`.
    """

    def start(self, nodes: Sequence[NodeSpec]) -> None:
        """Start all nodes.

        Raises:
            ClusterError: one of them did not come up.
        """
        ...

    def join(self, node: NodeSpec) -> None:
        """Start a node that was not there from the beginning, and its link."""
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

    # -- processes: what is done to a node that is gone already is done to nobody --------------------------------

    def kill(self, node: str, restart_after: float | None) -> None:
        """SIGKILL; the cluster itself starts it again after so many seconds. `exit` on the tape tells its status."""
        ...

    def terminate(self, node: str, restart_after: float | None) -> None:
        """SIGTERM, as `kill` else; SIGKILL follows for a node that does not end within two seconds."""
        ...

    def pause(self, node: str) -> None:
        """Stop the process where it is (SIGSTOP); one that stopped itself is taken over."""
        ...

    def resume(self, node: str) -> None:
        """Let the process that was paused go on; harmless where it is gone."""
        ...

    def throttle(self, node: str, share: float | None, spread: float = 0.0, seed: int = 0) -> None:
        """Let a node run only this share of the time, varied by up to `spread` from period to period; None: all of it
        again."""
        ...

    def supersede(self, node: str) -> None:
        """Stop the process and start the next incarnation beside it, as after a partition that looked like a death."""
        ...

    def revive(self, node: str) -> None:
        """Let the superseded process go on: a stale incarnation comes back."""
        ...

    def limit_writes(self, node: str, size: int, restart_after: float) -> None:
        """Let the process write no file beyond this size (bytes). It may die of it; then it is started again."""
        ...

    def unlimit_writes(self, node: str) -> None:
        """Take that limit back; harmless where the process is gone."""
        ...

    def corrupt_memory(self, node: str, corruption: Corruption) -> None:
        """Have values in a training process' memory fail, before its next inner step; `corrupted` on its tape tells."""
        ...

    # -- state: the files of a node that is down -----------------------------------------------------------------

    def wait_gone(self, node: str) -> None:
        """Wait until the process that was killed is gone.

        Raises:
            ClusterError: it is still there after two seconds.
        """
        ...

    def state_files(self, node: str) -> dict[str, int]:
        """Name and size in bytes of the files from which a node goes on."""
        ...

    def tape_size(self, node: str) -> int:
        """Bytes of the tape that the node's process writes."""
        ...

    def alter(self, node: str, name: str, change: Callable[[bytes], bytes | None]) -> None:
        """Replace a state file's content; None removes it."""
        ...

    # -- links ---------------------------------------------------------------------------------------------------

    def links_of(self, node: str) -> list[str]:
        """The link of a node that connects; all links of a node that others connect to; a link by its own name."""
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

    def disable_link(self, link: str) -> None:
        """Take a link down: its connections break, new ones are refused."""
        ...

    def enable_link(self, link: str) -> None:
        """Bring it up again, at the same address."""
        ...

    # -- the end -------------------------------------------------------------------------------------------------

    def residue(self) -> list[str]:
        """What of any fault is still there, in words; empty when all is undone."""
        ...

    def dump_stacks(self) -> None:
        """Have every node that runs write its threads' stacks to its log."""
        ...

    def stop(self) -> None:
        """End every node and link; can be called at any time, twice too."""
        ...


@runtime_checkable
class MemoryLimits(Protocol):
    """Nodes have memory of their own that can be used up."""

    def exhaust_memory(self, node: str, restart_after: float | None) -> None:
        """Have the kernel kill the node's process for want of memory; it is started again as after a kill."""
        ...


@runtime_checkable
class Network(Protocol):
    """Nodes are on a network that they can be taken off."""

    def disconnect(self, node: str, off: bool) -> None:
        """Take a node off the network, or put it back: nobody is told, packets vanish."""
        ...


@runtime_checkable
class Disks(Protocol):
    """A node's state lies on a small disk of its own."""

    def fill_disk(self, node: str, restart_after: float) -> int:
        """Fill the disk that the node's state lies on, until nothing fits any more; bytes that were written. It may die
        of it; then it is started again."""
        ...

    def empty_disk(self, node: str) -> None:
        """Take back what `fill_disk` wrote; harmless where there is nothing."""
        ...


@runtime_checkable
class LinkServer(Protocol):
    """The links' server can be restarted while nodes go on."""

    def restart_links(self) -> float:
        """End the link server and start it again with the same links and toxics; seconds that it took. Every connection
        breaks."""
        ...


@runtime_checkable
class Engine(Protocol):
    """All nodes run on something that can be restarted under them."""

    def restart_engine(self) -> None:
        """Begin to restart what all nodes run on, by the command that the user gave for it."""
        ...


@runtime_checkable
class Power(Protocol):
    """What is not on stable storage can be lost."""

    def lose_power(self, node: str, restart_after: float | None) -> None:
        """As `kill`, and with it goes what was not on stable storage."""
        ...


@runtime_checkable
class Processes(Protocol):
    """The processes that a node has started can be told apart."""

    def signal_process(self, node: str, process: str, number: signal.Signals) -> list[int]:
        """Signal one of them, and not what it has started in turn.

        Args:
            node: whose it is.
            process: NAME-ID, by what the scenario calls it.
            number: the signal.

        Returns:
            The pids of those that were signalled; none where there is no such process.
        """
        ...


@runtime_checkable
class Clocks(Protocol):
    """A node sees a clock of its own."""

    def jump_clock(self, node: str, seconds: float) -> None:
        """Set the clock that the node sees forward by so much, as when a machine was suspended."""
        ...


@runtime_checkable
class SharedLinks(Protocol):
    """Links can share a rate."""

    def share_links(self, links: Sequence[str], rate: float | None, streams: Sequence[str]) -> None:
        """Let these links carry so many bytes per second all together, in each of these directions (`upstream`,
        `downstream`); None: as if they shared nothing."""
        ...


@runtime_checkable
class Carries(Protocol):
    """What its links carry is counted. Not asked for by faults: where nobody counts, the trainer's protocol tells."""

    def carried(self, links: Sequence[str]) -> int | None:
        """Bytes that these links have taken from both sides since they were made, all together; None: not known."""
        ...

    def connections(self, links: Sequence[str]) -> int | None:
        """How many stand on these links now, all together; None: not known."""
        ...


@runtime_checkable
class Asks(Protocol):
    """Its links are measured from where its nodes are. Not asked for by faults."""

    def ask(self, link: str, reply_bytes: int, send_bytes: int, watch_close: bool) -> Sounding:
        """See `diloco_chaos.harness.trainers.wire.probe.probe`; may be called from any thread.

        Raises:
            ClusterError: nobody there can be asked.
        """
        ...


@runtime_checkable
class Watched(Protocol):
    """Its nodes are on other machines than the harness. Not asked for by faults."""

    def machines(self, here: Sample) -> list[dict[str, float | str]]:
        """What these machines did lately, for the tape. `here`: what this one did."""
        ...


@runtime_checkable
class Pods(Protocol):
    """Nodes run in pods, which can be taken away."""

    def delete_pod(self, node: str, restart_after: float | None, *, evict: bool = False) -> None:
        """Delete a node's pod, or evict it: SIGTERM, and SIGKILL after its grace period. The next incarnation gets a
        new pod, and an empty disk."""
        ...


@runtime_checkable
class Drains(Protocol):
    """Pods can be kept from a machine."""

    def drain(self, node: str, restart_after: float | None) -> None:
        """Evict all pods of this run from the machine that a node is on, and put none there any more."""
        ...


@runtime_checkable
class Jobs(Protocol):
    """Nodes run in jobs of a queue."""

    def requeue(self, node: str, restart_after: float | None) -> None:
        """End a node's job and put it back into the queue. The next incarnation starts after so many seconds, and not
        before its job does; on an empty disk, and maybe elsewhere."""
        ...


@runtime_checkable
class Machines(Protocol):
    """Nodes are on several machines."""

    def lose_machine(self, node: str, restart_after: float | None) -> None:
        """Take the power from the machine that a node is on, by the command that the user gave for it."""
        ...

    def part_machine(self, node: str, off: bool) -> None:
        """Cut the machine that a node is on off from all others, or let it back, by the user's commands."""
        ...


@runtime_checkable
class ControlPlane(Protocol):
    """Something manages the pods, and can be gone while they run."""

    def restart_control_plane(self) -> None:
        """Begin to restart it, by the command that the user gave for it."""
        ...

    def control_plane_away(self, within: float) -> float:
        """Wait until it is gone and back; seconds that it did not answer, 0 where it always did for so many seconds."""
        ...


CAPABILITIES: dict[Ability, type] = {
    "exhaust_memory": MemoryLimits, "disconnect": Network, "fill_disk": Disks, "restart_links": LinkServer,
    "restart_engine": Engine, "lose_power": Power, "jump_clock": Clocks, "share_links": SharedLinks,
    "signal_process": Processes, "delete_pod": Pods, "evict": Pods, "drain_node": Drains, "requeue": Jobs,
    "node_power_loss": Machines, "node_partition": Machines, "restart_control_plane": ControlPlane}
"""What only some backends can do -> what their cluster then has."""
