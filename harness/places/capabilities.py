"""What only some places have, each a protocol of its own that one of a site's `parts` implements."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

from diloco_chaos.harness.base.machine import Sample
from diloco_chaos.harness.links.corruption import Corrupted
from diloco_chaos.harness.links.probe import Sounding
from diloco_chaos.harness.places.base import STOP_TIMEOUT_S, Ability
from diloco_chaos.harness.places.pressure import Felt, Load
from diloco_chaos.harness.preload.cuda import CudaHits, CudaRule
from diloco_chaos.harness.preload.page import Hits, Holding, Rule, Stood
from diloco_chaos.harness.preload.unsynced import Loss
from diloco_chaos.harness.record.tape.events import Machine


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
        """Kill it as `kill` does; what was not on stable storage is lost, too."""
        ...


@runtime_checkable
class InnerProcesses(Protocol):
    """The processes that a node has started can be told apart."""

    def signal_process(self, node: str, process: str, number: signal.Signals) -> list[int]:
        """Signal one of them, and not what it has started in turn.

        Args:
            node: whose it is.
            process: NAME-ID, by what the scenario calls it.
            number: the signal.

        Returns:
            The pids of those that were signalled; none where there is no such process.

        Raises:
            ClusterError: nothing there can tell them apart.
        """
        ...


@runtime_checkable
class Processes(Protocol):
    """A node's first process can end alone."""

    def kill_first(self, node: str, restart_after: float | None) -> None:
        """SIGKILL to the node's first process, as `kill` else; what that has started lives on, to the end of the run at
        the latest."""
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
        """Return how many connections stand on these links now, all together; None: not known."""
        ...


@runtime_checkable
class DrawsLinks(Protocol):
    """Its links say how they draw which connections a toxic hits."""

    def draws_once(self) -> bool:
        """Return whether all toxics of a fault hit the same connections; else each of its directions is drawn alone."""
        ...


@runtime_checkable
class CorruptsLinks(Protocol):
    """Links can turn over bits in what they carry."""

    def corrupted(self, links: Sequence[str], toxics: Sequence[str]) -> Mapping[str, Corrupted]:
        """Return what these toxics (of the type `corrupt`, by name) have done until now to these links, by the side of
        a link and the direction; also of toxics that are off again."""
        ...


@runtime_checkable
class SeesBeside(Protocol):
    """Connections between nodes that pass no link can be seen. Not asked for by faults' plans."""

    def beside(self) -> list[tuple[str, str, str]]:
        """Return those that stand now: two nodes, and the program that one of them has it with; any thread may ask."""
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

    def machines(self, here: Sample) -> list[Machine]:
        """Return what these machines did lately, for the tape. `here`: what this one did."""
        ...


@runtime_checkable
class Pods(Protocol):
    """Nodes run in pods, which can be taken away."""

    def delete_pod(self, node: str, restart_after: float | None, *, evict: bool = False,
                   grace: float = STOP_TIMEOUT_S) -> None:
        """Delete a node's pod, or evict it: SIGTERM, and SIGKILL after its grace period, `grace` seconds where it is
        deleted. The next incarnation gets a new pod, and an empty disk."""
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


@runtime_checkable
class CallFaults(Protocol):
    """Calls of a node's processes on files can be made to fail."""

    def arm(self, node: str, fault: str, rule: Rule) -> str:
        """Let a rule hold for all processes of a node from now on, also for those that start later.

        Args:
            node: whose processes.
            fault: the fault's id, by which the rule is known.
            rule: its pattern may have placeholders of the node's own, and begins with a slash or means any folder.

        Returns:
            Why no process of the node can be hit; empty: one can.
        """
        ...

    def disarm(self, node: str, fault: str) -> None:
        """Let the rule hold no more; harmless where there is none."""
        ...

    def hits(self, node: str, fault: str) -> tuple[Hits, list[str]] | None:
        """Return what the rule has done, and the files with such calls that it did not mean; None: it never held."""
        ...


@runtime_checkable
class MainThreads(Protocol):
    """The main thread of a node's process can be made to stand, while its others go on."""

    def hang(self, node: str, fault: str, holding: Holding) -> str:
        """Let it stand, and try for a moment.

        Args:
            node: whose it is.
            fault: the fault's id.
            holding: what it is to hold while it stands, or that it is to stand in a network call.

        Returns:
            Why it can't stand; empty: it can.
        """
        ...

    def press(self, fault: str) -> Stood | None:
        """Try again, from any thread; None: none stands yet."""
        ...

    def release(self, fault: str) -> None:
        """Let it go on; harmless where it does."""
        ...


@runtime_checkable
class InnerMainThreads(MainThreads, Protocol):
    """So can that of one of the processes that a node has started."""

    def hang_inner(self, node: str, fault: str, process: str, holding: Holding) -> str:
        """Let it stand, as `hang` does that of the node's first one. `process`: NAME-ID, by what the scenario calls it.
        """
        ...


@runtime_checkable
class CudaCalls(Protocol):
    """Calls of the CUDA runtime in a node's processes can be made to fail."""

    def fail_cuda(self, node: str, fault: str, rule: CudaRule) -> str:
        """Let a rule hold for all processes of a node from now on, also for those that start later.

        Returns:
            Why no process of the node can be hit; empty: one can.
        """
        ...

    def heal_cuda(self, node: str, fault: str) -> None:
        """Let the rule hold no more; harmless where there is none."""
        ...

    def cuda_hits(self, node: str, fault: str) -> CudaHits | None:
        """Return what the rule has done; None: it never held."""
        ...


@runtime_checkable
class Pressure(Protocol):
    """The machine that nodes are on can be kept busy."""

    def press_on(self, fault: str, load: Load, nodes: Sequence[str]) -> str:
        """Keep it busy from now on.

        Args:
            fault: the fault's id.
            load: with what.
            nodes: those that must feel it; all others on that machine do, too.

        Returns:
            Why that can't be, and what to write instead; empty: it can.
        """
        ...

    def lift(self, fault: str) -> None:
        """Let it rest; harmless where it does."""
        ...

    def felt(self, fault: str, node: str) -> Felt | None:
        """Return what a node met of it, once it is over; None: it never was."""
        ...


@runtime_checkable
class Unsynced(Protocol):
    """What a node's processes have written and not synced can be lost."""

    def kill_unsynced(self, node: str, restart_after: float | None, pattern: str) -> Loss:
        """Kill it as `kill` does; what was not synced is lost, before the next incarnation starts.

        Args:
            node: whose processes and files.
            restart_after: seconds until it is started again; None: it is not.
            pattern: of the files; it may have placeholders of the node's own, and begins with a slash or means any
                folder. Empty: all files in the run's folder, and where the node runs.
        """
        ...


CAPABILITIES: dict[Ability, type] = {
    "exhaust_memory": MemoryLimits, "disconnect": Network, "fill_disk": Disks, "restart_links": LinkServer,
    "restart_engine": Engine, "lose_power": Power, "jump_clock": Clocks, "share_links": SharedLinks,
    "signal_process": Processes, "signal_inner": InnerProcesses, "delete_pod": Pods, "evict": Pods,
    "drain_node": Drains, "requeue": Jobs,
    "node_power_loss": Machines, "node_partition": Machines, "restart_control_plane": ControlPlane,
    "fail_calls": CallFaults, "hang": MainThreads, "hang_inner": InnerMainThreads, "press": Pressure,
    "lose_unsynced": Unsynced,
    "corrupt_links": CorruptsLinks, "cuda": CudaCalls}
"""What only some backends can do -> what their cluster then has."""
