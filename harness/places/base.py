"""What places speak of: nodes, their states, and what can be done to them.

Nothing here is about DiLoCo. Another trainer comes under test by describing its nodes and writing the tape: a node that
others connect to records `listening` with its port, every node records `start`.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from diloco_chaos.harness.base.errors import UserError
from diloco_chaos.harness.record.tape.events import Event
from diloco_chaos.harness.trainers.core.programs import Program, link_name

Recorder = Callable[[Event], None]
"""Writes an event to the harness' own tape."""

Ability = Literal["kill", "terminate", "restart", "pause", "throttle", "links", "state", "limit_writes", "supersede",
                  "join", "corrupt_memory", "exhaust_memory", "disconnect", "fill_disk", "restart_links",
                  "restart_engine", "lose_power", "jump_clock", "share_links", "signal_process", "signal_inner",
                  "delete_pod", "evict", "drain_node", "requeue", "node_power_loss", "node_partition",
                  "restart_control_plane", "fail_calls", "hang", "hang_inner", "press", "lose_unsynced",
                  "corrupt_links", "cuda"]
ABILITIES: tuple[Ability, ...] = get_args(Ability)
EVERYWHERE: frozenset[Ability] = frozenset({
    "kill", "terminate", "restart", "pause", "throttle", "links", "state", "limit_writes", "supersede", "join",
    "corrupt_memory"})
"""What every cluster can do. What else a place can do, it says itself."""
OF_MACHINES: frozenset[Ability] = frozenset({"drain_node", "node_power_loss", "node_partition"})
"""What hits a whole machine: who is meant by it shares none with the others."""
FROM_WITHIN: frozenset[Ability] = frozenset({"fail_calls", "hang", "lose_unsynced", "cuda"})
"""What is done by a library that is preloaded into a node's processes."""
STOP_TIMEOUT_S = 2.0
"""A node that is asked to end, and is not given longer, has this time for it."""
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
    imports: tuple[str, ...] = ()
    """Modules that it imports as it starts. Where there are any, `argv` is `{python} -m MODULE ARGUMENTS`, and a place
    may import them once, and call the module's `main(ARGUMENTS)` in a fork for each node."""
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
    preloaded: frozenset[Ability] = frozenset()
    """What is done to its processes from within, by what is preloaded into them."""
    pressed: bool = False
    """Pressure is meant for it: what it meets before is measured, too."""
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
class Preemption:
    """The end of a process whose place its scheduler needs."""

    number: signal.Signals
    """The first signal that it gets."""
    grace: float
    """Seconds from the signal that asks it to end until SIGKILL."""
    notice: float | None = None
    """Seconds from the first signal until SIGTERM asks it to end; None: the first one does."""
    restart_after: float | None = None
    """Seconds from its end until the next incarnation starts; None: `beside` says so, or none does."""
    beside: float | None = None
    """Seconds from when it is asked to end until the next incarnation starts, beside it where it still lives."""


@dataclass(frozen=True)
class NodeState:
    """The state of a node as it is known now."""

    state: Literal["running", "paused", "dead", "finished"]
    incarnation: int
    pid: int | None
