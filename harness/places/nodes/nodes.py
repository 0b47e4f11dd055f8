"""A run's nodes on any place: their incarnations, which follow each other, are watched, restarted and hit by faults."""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Generic

from diloco_chaos.harness.places.base import (
    STOP_TIMEOUT_S,
    ClusterError,
    NodeSpec,
    NodeState,
    Preemption,
    Recorder,
    status_words,
)
from diloco_chaos.harness.places.nodes.incarnation import Clock, Incarnation, P
from diloco_chaos.harness.record.storage.files import last_lines
from diloco_chaos.harness.record.storage.log_ends import telling
from diloco_chaos.harness.record.tape.events import Exit, FileRead, Listening, Spawn, Warning
from diloco_chaos.harness.record.tape.reading import Tape
from diloco_chaos.harness.record.undo_log import UndoLog

START_TIMEOUT_S = 30.0
_AGAIN_S = 1.0
_BECOMES = {False: "the harness has ended that", True: "that lives until the run is over (`left_behind: keep`)"}
FULL_DISK = "the full disk"
"""By what a node ends whose disk is full; no fault is called so."""
Spawner = Callable[[NodeSpec, int], P | None]
"""spawn(node, number): start this incarnation; None where the place can't be asked now: that is done again."""
LastLines = Callable[[str, int], str]
"""last_lines(node, number): the end of an incarnation's log, to be shown."""


@dataclass
class Lemon:
    """A node whose processes are killed, whoever started them."""

    after_start: float
    restart_after: float | None
    left: int | None
    """So many more are; None: all."""
    until: float
    """None is later than that."""

    def takes_one(self, at: float) -> bool:
        """Return whether one more is at that time, and count it."""
        if at > self.until:
            return False
        if self.left is not None:
            self.left -= 1
        return self.left is None or self.left >= 0


def log_of(run: Path, node: str, number: int) -> Path:
    """Return where the log of an incarnation lies."""
    return run / "logs" / f"{node}.{number}.log"


def end_of_log(run: Path, node: str, number: int, count: int = 12) -> str:
    """Return the lines at the end of an incarnation's log that tell most, to be shown."""
    lines = telling(last_lines(log_of(run, node, number)), count)
    return "\n".join(f"  {line}" for line in lines) or "  (its log is empty)"


class Nodes(Mapping[str, Incarnation[P]], Generic[P]):
    """Each node's newest incarnation, by the node's name."""

    def __init__(self, run: Path, record: Recorder, undo_log: UndoLog, spawn: Spawner[P], *,
                 clock: Clock = time.monotonic, last_lines: LastLines | None = None,
                 on_end: Callable[[Incarnation[P], int], None] = lambda *_: None) -> None:
        """`clock`: seconds, as `time.monotonic` counts them. `last_lines`: of a log that is not in the run's folder.
        `on_end(node, status)`: is told of every end before it is recorded, and may raise what is behind it."""
        self.ports: dict[str, int] = {}
        """Node -> where it listens."""
        self.superseded: dict[str, Incarnation[P]] = {}
        """Node -> an incarnation that stands beside its successor."""
        self._run, self._record, self._undo_log, self._spawn = run, record, undo_log, spawn
        self._clock, self._on_end = clock, on_end
        self.last_lines: LastLines = last_lines or (lambda node, number: end_of_log(run, node, number))
        self._newest: dict[str, Incarnation[P]] = {}
        self._lemons: dict[str, Lemon] = {}
        self._no_space: dict[str, dict[str, float]] = {}  # node -> fault -> seconds until it is started again

    def __getitem__(self, node: str) -> Incarnation[P]:
        return self._newest[node]

    def __iter__(self) -> Iterator[str]:
        return iter(self._newest)

    def __len__(self) -> int:
        return len(self._newest)

    def everyone(self) -> list[Incarnation[P]]:
        """Return every node's newest incarnation, and those that were superseded."""
        return [*self._newest.values(), *self.superseded.values()]

    # -- their beginning and their end ---------------------------------------------------------------------------------

    def start(self, spec: NodeSpec, number: int) -> Incarnation[P]:
        """Start this incarnation, and record it; where the place can't be asked, the one before waits a second more.

        Raises:
            ClusterError: it can't be started.
        """
        process = self._spawn(spec, number)
        if process is None:
            self._newest[spec.name].restart_at = self._clock() + _AGAIN_S
            return self._newest[spec.name]
        self._newest[spec.name] = started = Incarnation(spec, number, process, self._undo_log, self._clock)
        self._record(Spawn(target=spec.name, incarnation=number, **process.whereabouts()))
        lemon = self._lemons.get(spec.name)
        if lemon is not None and lemon.takes_one(due := self._clock() + lemon.after_start):
            started.doomed = due, lemon.restart_after
        return started

    def poll(self) -> None:
        """Notice deaths, restart what is due.

        Raises:
            ClusterError: a node died that nobody killed.
        """
        now = self._clock()
        for node in self.everyone():
            if (status := node.look(now)) is not None:
                self._ended(node, status)
            if node.restart_at is not None and now >= node.restart_at:
                node.restart_at = None
                self.start(node.spec, node.number + 1)
                self._expect_again(node.name)  # it may come back to a full disk: another fault had ended it before
            self._succeed(node)

    def note_read(self, node: str, name: str) -> None:
        """Record that a file of a node's state was read that a fault had damaged."""
        self._record(FileRead(target=node, incarnation=self[node].number, file=name))

    def wait_gone(self, node: str) -> None:
        """Wait for the end that was brought about.

        Raises:
            ClusterError: it is still there after two seconds.
        """
        if self[node].alive:
            self._ended(self[node], self[node].wait())

    def end(self, passing: tuple[type[Exception], ...] = (), warn: Callable[[str], None] = lambda _: None) -> None:
        """SIGTERM, and SIGKILL after two seconds. `passing`: what keeps one from being asked to end, and no other; it
        ends with what it runs in. `warn` is told of it."""
        for node in self.everyone():
            try:
                node.stop()
            except passing as error:
                warn(str(error))
        until = time.monotonic() + STOP_TIMEOUT_S
        for node in self.everyone():
            node.reap(until)

    def await_listening(self, name: str) -> int:
        """The port that a node that was just started says it listens on.

        Raises:
            ClusterError: it ended before, or took too long.
        """
        until, number = time.monotonic() + START_TIMEOUT_S, self[name].number
        while time.monotonic() < until:
            for event in Tape.read(self._run / "tape").of(Listening, node=name):
                if event.inc == number:
                    return event.port
            if (status := self[name].process.ended()) is not None:
                raise ClusterError(f"{name} did not start ({status_words(status)}):\n{self.last_lines(name, number)}")
            time.sleep(0.02)
        raise ClusterError(f"{name} did not listen within {START_TIMEOUT_S:.0f} s:\n{self.last_lines(name, number)}")

    def _ended(self, node: Incarnation[P], status: int) -> None:
        """Record an end. A command's scheduler may start it again; where it does not, the others go on."""
        self._on_end(node, status)
        program, lemon = node.spec.program, self._lemons.get(node.name)
        follows = lemon is not None and lemon.restart_after is None and node.expected_exit
        if program is not None and (follows or not node.expected_exit) and (
                program.restart == "always" or (program.restart == "on-failure" and status != 0)):
            node.restart_at = self._clock() + program.restart_delay
        again = None if program is None else node.restart_at is not None
        gone = Exit(target=node.name, incarnation=node.number, status=status, killed=node.expected_exit,
                    forced_after=node.forced_after, again=again, trusted=follows and again is True,
                    **node.process.details())
        self._record(gone)
        if gone.left:
            self._record(Warning(reason=f"{node.name}.{node.number} ended and left behind: {'; '.join(gone.left)}; "
                                        f"{_BECOMES[program is not None and program.keeps_leftovers]}"))
        if status != 0 and not node.expected_exit and program is None:
            raise ClusterError(f"{node.name} died on its own ({status_words(status)}):\n"
                               f"{self.last_lines(node.name, node.number)}")

    # -- what faults do to them ----------------------------------------------------------------------------------------

    def states(self) -> dict[str, NodeState]:
        """Return every node's state, by the node's name."""
        return {name: node.known() for name, node in self._newest.items()}

    def spoil(self, node: str, after_start: float, restart_after: float | None, times: int | None,
              lasts: float | None) -> None:
        """Kill its process now, and each that follows so long after its start, whoever started it; `lasts`: for so many
        seconds, None: to the end."""
        now = self._clock()
        until = math.inf if lasts is None else now + lasts
        lemon = self._lemons[node] = Lemon(after_start, restart_after, times, until)
        if self[node].alive and lemon.takes_one(now):
            self[node].end(signal.SIGKILL, restart_after)

    def mend(self, node: str) -> None:
        """Let it live, and those that follow; harmless where nothing was to end it."""
        self._lemons.pop(node, None)
        self[node].doomed = None

    def retire(self, node: str) -> None:
        """End it, and all that is to follow it."""
        self.mend(node)
        self[node].stay_away()
        self[node].end(signal.SIGKILL, None)

    def supersede(self, node: str) -> None:
        """Stop it, and start the next incarnation beside it."""
        current, before = self[node], self.superseded.get(node)
        if current.alive and not (before and before.alive):
            current.pause()
            current.expect_exit(None)  # nobody is to follow its successor
            self.superseded[node] = current
            self.start(current.spec, current.number + 1)

    def preempt(self, node: str, order: Preemption) -> None:
        """Bring its end about as a scheduler does that needs its place."""
        self[node].preempt(order)
        self._succeed(self[node])

    def _succeed(self, node: Incarnation[P]) -> None:
        """Start the next incarnation where it is due, beside one that may still live; a third process waits for the end
        of the first."""
        if node.successor_at is None or self._clock() < node.successor_at:
            return
        before = self.superseded.get(node.name)
        if self[node.name] is node and node.alive and before is not None and before.alive:
            return
        node.stay_away()
        if self[node.name] is node:  # else another fault has had it started
            node.expect_exit(None)  # nobody is to follow its successor
            if node.alive:
                self.superseded[node.name] = node
            self.start(node.spec, node.number + 1)

    def revive(self, node: str) -> None:
        """Let the old one go on. Until its successor is heard of it is the rightful one; then it has to see that, or it
        stays to the end of the run. One that stopped itself at a failpoint goes on, too."""
        if node in self.superseded:
            self.superseded[node].pause()  # takes it over
            self.superseded[node].resume()

    def unlimit_writes(self, node: str) -> None:
        """Set the limit from before again. What its processes may end of beside that stands."""
        self[node].unlimit_writes()
        self._expect_again(node)

    def expect_no_space(self, node: str, fault: str, restart_after: float) -> None:
        """Its processes end because nothing can be written, until there is room again. `fault`: by which that is."""
        self._no_space.setdefault(node, {})[fault] = restart_after
        self._expect_again(node)

    def space_again(self, node: str, fault: str) -> None:
        """This fault leaves room; harmless where there always was. What another one leaves is not known by that."""
        self._no_space.get(node, {}).pop(fault, None)
        if self[node].alive:
            self[node].clear_expected_exit()
        self._expect_again(node)

    def _expect_again(self, node: str) -> None:
        """Let it end of what still lasts; it is started again when the longest of these says so."""
        if (lasting := self._no_space.get(node)) and self[node].alive:
            self[node].expect_exit(max(lasting.values()))

    def residue(self) -> list[str]:
        """Return what of any fault is still on them, in words."""
        return [words for node in self.everyone() for words in node.residue()]

    def dump_stacks(self, names: Collection[str]) -> None:
        """SIGUSR1: these nodes write their stacks to their logs (a stopped one does so when it is ended); commands
        would die of it."""
        for node in self._newest.values():
            if node.name in names and node.alive and node.spec.program is None:
                node.process.send(signal.SIGUSR1)
