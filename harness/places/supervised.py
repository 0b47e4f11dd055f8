"""What clusters of every place share: incarnations that are watched and restarted, files of state, and links.

A place says how its nodes are started and where its link server is.
"""

from __future__ import annotations

import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from diloco_chaos.harness.links.toxic import Toxic
from diloco_chaos.harness.places.base import ClusterError, NodeSpec, NodeState, Recorder, status_words
from diloco_chaos.harness.places.incarnation import Clock, Incarnation
from diloco_chaos.harness.places.link_undos import Enable, Toxin
from diloco_chaos.harness.record.storage.files import last_lines
from diloco_chaos.harness.record.tape import reading
from diloco_chaos.harness.record.undo_log import UndoLog
from diloco_chaos.harness.trainers.core import memory
from diloco_chaos.harness.trainers.core.memory import Corruption

START_TIMEOUT_S = 30.0


class LinkControl(Protocol):
    """What a cluster asks of its link server; `diloco_chaos.harness.links.client.Links` for one."""

    def add(self, link: str, toxic: Toxic) -> None:
        """Put a toxic on."""
        ...

    def remove(self, link: str, toxic_name: str) -> None:
        """Take it off."""
        ...

    def toxics(self, link: str) -> list[Toxic]:
        """What is on."""
        ...

    def set_enabled(self, link: str, enabled: bool) -> None:
        """Take a link down, or bring it up."""
        ...

    def enabled(self, link: str) -> bool:
        """Whether it is up."""
        ...


AnyIncarnation = TypeVar("AnyIncarnation", bound=Incarnation)


class SupervisedCluster(ABC, Generic[AnyIncarnation]):
    """Implements most of `diloco_chaos.harness.places.base.Cluster`."""

    def __init__(self, run: Path, record: Recorder, undo_log: UndoLog, clock: Clock = time.monotonic) -> None:
        """`run`: the run's folder, for logs and to read `listening` from the tape. `undo log`: for undos, and for the
        token that everything of the run carries. `clock`: seconds, as `time.monotonic` counts them."""
        self._run, self._record, self._undo_log, self._clock = run, record, undo_log, clock
        self._nodes: dict[str, AnyIncarnation] = {}
        self._superseded: dict[str, AnyIncarnation] = {}
        self._addresses: dict[str, str] = {}  # link -> where the node's side of it listens
        self._toxics: dict[str, dict[str, Toxic]] = {}
        self._disabled: set[str] = set()
        self._disk_full: dict[str, float] = {}  # node -> seconds after which it is started again

    # -- what places differ in -----------------------------------------------------------------------------------------

    @abstractmethod
    def _spawn(self, spec: NodeSpec, number: int) -> None:
        """Start this incarnation, and record `spawn`."""

    @abstractmethod
    def _links(self) -> LinkControl:
        """The link server.

        Raises:
            ClusterError: it is not up.
        """

    def _owe_link(self, undo: type[Toxin | Enable], link: str, what: str = "") -> None:
        """Write down what undoes the deed at hand, where nothing that is owed already does."""

    def _paid_link(self, link: str, what: str = "") -> None:
        """It was undone."""

    def _last_lines(self, name: str, incarnation: int, count: int = 12) -> str:
        """The end of a node's log."""
        lines = last_lines(self._run / "logs" / f"{name}.{incarnation}.log")[-count:]
        return "\n".join(f"  {line}" for line in lines) or "  (its log is empty)"

    # -- incarnations --------------------------------------------------------------------------------------------------

    def poll(self) -> None:
        """Notice deaths, restart what is due."""
        now = self._clock()
        for node in self._everyone():
            if (status := node.look(now)) is not None:
                self._gone(node, status)
            if node.restart_at is not None and now >= node.restart_at:
                node.restart_at = None
                self._spawn(node.spec, node.incarnation + 1)
                if node.name in self._disk_full:  # it comes back to a full disk: another fault had ended it before
                    self._expect_no_space(node.name, self._disk_full[node.name])

    def _expect_no_space(self, node: str, restart_after: float) -> None:
        """Its processes end because nothing can be written, until there is room again."""
        self._disk_full[node] = restart_after
        if self._nodes[node].alive:
            self._nodes[node].expected_exit, self._nodes[node].restart_after = True, restart_after

    def states(self) -> dict[str, NodeState]:
        """Every node's state."""
        return {name: node.known() for name, node in self._nodes.items()}

    def kill(self, node: str, restart_after: float | None) -> None:
        """SIGKILL, also to one that stands still."""
        self._nodes[node].end(signal.SIGKILL, restart_after)

    def terminate(self, node: str, restart_after: float | None) -> None:
        """SIGTERM, and SIGKILL after two seconds."""
        self._nodes[node].end(signal.SIGTERM, restart_after)

    def pause(self, node: str) -> None:
        """Stop it where it is."""
        self._nodes[node].pause()

    def resume(self, node: str) -> None:
        """Let it go on, where it was paused."""
        self._nodes[node].resume()

    def throttle(self, node: str, share: float | None, spread: float = 0.0, seed: int = 0) -> None:
        """Hold it back."""
        self._nodes[node].throttle(share, spread, seed)

    def supersede(self, node: str) -> None:
        """Stop it, and start the next incarnation beside it."""
        current, before = self._nodes[node], self._superseded.get(node)
        if current.alive and not (before and before.alive):
            current.pause()
            current.expected_exit, current.restart_after = True, None  # nobody is to follow its successor
            self._superseded[node] = current
            self._spawn(current.spec, current.incarnation + 1)

    def revive(self, node: str) -> None:
        """Let the old one go on. Until its successor is heard of it is the rightful one; then it has to see that, or it
        stays to the end of the run. One that stopped itself at a failpoint goes on, too."""
        if node in self._superseded:
            self._superseded[node].pause()  # takes it over
            self._superseded[node].resume()

    def limit_writes(self, node: str, size: int, restart_after: float) -> None:
        """RLIMIT_FSIZE of the process, set from outside."""
        self._nodes[node].limit_writes(size, restart_after)

    def unlimit_writes(self, node: str) -> None:
        """The limit from before. What its processes may end of beside that stands."""
        self._nodes[node].unlimit_writes()
        if node in self._disk_full:
            self._expect_no_space(node, self._disk_full[node])

    def corrupt_memory(self, node: str, corruption: Corruption) -> None:
        """An order in the run's folder, which the node carries out."""
        memory.order(self._run, node, self._nodes[node].incarnation, corruption)

    def _everyone(self) -> list[AnyIncarnation]:
        return [*self._nodes.values(), *self._superseded.values()]

    def _gone(self, node: AnyIncarnation, status: int) -> None:
        """Record an end. A command's scheduler may start it again; where it does not, the others go on.

        Raises:
            ClusterError: nobody had brought it about, and it is no command.
        """
        program = node.spec.program
        if program is not None and not node.expected_exit and (
                program.restart == "always" or (program.restart == "on-failure" and status != 0)):
            node.restart_at = self._clock() + program.restart_delay
        self._record("exit", target=node.name, incarnation=node.incarnation, status=status, killed=node.expected_exit,
                     **({} if program is None else {"again": node.restart_at is not None}), **node.details())
        if status != 0 and not node.expected_exit and node.spec.program is None:
            raise ClusterError(f"{node.name} died on its own ({status_words(status)}):\n"
                               f"{self._last_lines(node.name, node.incarnation)}")

    def _listening_port(self, name: str) -> int:
        """The port that a node says it listens on."""
        until, number = time.monotonic() + START_TIMEOUT_S, self._nodes[name].incarnation
        while time.monotonic() < until:
            for event in reading.read(self._run / "tape").of("listening", node=name):
                if event.incarnation == number:
                    return int(event["port"])
            if (status := self._nodes[name].ended()) is not None:
                raise ClusterError(f"{name} did not start ({status_words(status)}):\n{self._last_lines(name, number)}")
            time.sleep(0.02)
        raise ClusterError(f"{name} did not listen within {START_TIMEOUT_S:.0f} s:\n{self._last_lines(name, number)}")

    # -- state ---------------------------------------------------------------------------------------------------------

    def wait_gone(self, node: str) -> None:
        """Wait for the end that was brought about."""
        current = self._nodes[node]
        if current.alive:
            self._gone(current, current.wait())

    def state_files(self, node: str) -> dict[str, int]:
        """The files in its folder of state, and below it; links are none of them."""
        folder = self._state_folder(node)
        return {str(path.relative_to(folder)): path.stat().st_size for path in sorted(folder.rglob("*"))
                if path.is_file() and not path.is_symlink()}

    def tape_size(self, node: str) -> int:
        """The tape of the newest incarnation."""
        path = self._run / "tape" / f"{node}.{self._nodes[node].incarnation}.jsonl"
        return path.stat().st_size if path.exists() else 0

    def alter(self, node: str, name: str, change: Callable[[bytes], bytes | None]) -> None:
        """Rewrite or remove a file."""
        path = self._state_folder(node) / name
        changed = change(path.read_bytes())
        if changed is None:
            path.unlink()
        else:
            path.write_bytes(changed)

    def _state_folder(self, node: str) -> Path:
        spec = self._nodes[node].spec
        if not spec.state:
            raise ClusterError(f"{node} keeps no state")
        folder = self._run / spec.state
        if not folder.resolve().is_relative_to(self._run.resolve()):
            raise ClusterError(f"{node}: its folder of state leads out of the run's, to {folder.resolve()}: nothing is "
                               f"damaged there")
        return folder

    # -- links ---------------------------------------------------------------------------------------------------------

    def links_of(self, node: str) -> list[str]:
        """Its own links, and all that lead to it; a link by its name is itself."""
        if node not in self._nodes and node in self._addresses:
            return [node]
        own = [link for link in self._nodes[node].spec.links if link in self._addresses] if node in self._nodes else []
        return own + [link for other in self._nodes.values() for link, to in other.spec.links.items()
                      if to == node and link in self._addresses]

    def address(self, link: str) -> str:
        """Where the node's side of a link listens."""
        return self._addresses[link]

    def degrade(self, link: str, toxics: Sequence[Toxic]) -> None:
        """Put these toxics on a link."""
        for toxic, side in product(toxics, self._sides(link)):
            self._put(side, toxic)

    def restore(self, link: str, toxics: Sequence[Toxic]) -> None:
        """Take these toxics off a link."""
        for toxic, side in product(toxics, self._sides(link)):
            self._links().remove(side, toxic.name)
            self._toxics.get(side, {}).pop(toxic.name, None)
            self._paid_link(side, toxic.name)

    def disable_link(self, link: str) -> None:
        """Its connections break, new ones are refused."""
        for side in self._sides(link):
            self._owe_link(Enable, side)
            self._disabled.add(side)
            self._links().set_enabled(side, False)

    def enable_link(self, link: str) -> None:
        """Bring it up again, at the same address."""
        for side in self._sides(link):
            self._links().set_enabled(side, True)
            self._disabled.discard(side)
            self._paid_link(side)

    def _put(self, side: str, toxic: Toxic) -> None:
        self._owe_link(Toxin, side, toxic.name)
        self._toxics.setdefault(side, {})[toxic.name] = toxic
        self._links().add(side, toxic)

    def _sides(self, link: str) -> Sequence[str]:
        """What is done to a link is done to these."""
        return (link,)

    # -- the end -------------------------------------------------------------------------------------------------------

    def residue(self) -> list[str]:
        """What of any fault is still there."""
        left = [words for node in self._everyone() for words in node.residue()]
        for side in (side for link in self._addresses for side in self._sides(link)):
            left += [f"toxic {toxic.name} on {side}" for toxic in self._links().toxics(side)]
            left += [] if self._links().enabled(side) else [f"{side} is partitioned"]
        return left

    def dump_stacks(self) -> None:
        """SIGUSR1: nodes write their stacks to their logs (a stopped one does so when it is ended); commands
        would die of it."""
        for node in self._nodes.values():
            if node.alive and node.spec.program is None:
                node.send(signal.SIGUSR1)
