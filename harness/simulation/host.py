"""What all simulated processes of a run share: a machine's processors, the world's time, the tape."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Protocol

from diloco_chaos.harness.record.storage.disk import Content
from diloco_chaos.harness.record.tape.events import Event
from diloco_chaos.harness.simulation.parameters import Parameters
from diloco_chaos.harness.simulation.sizes import Sizes
from diloco_chaos.harness.simulation.world import World
from diloco_chaos.harness.trainers.core.effects import Save, Working

RecordEvent = Callable[[str, int, Event], None]
"""record(node, incarnation, event)"""
KeepWorking = Callable[[str, int, Working], None]
_LEAST_SHARE = 0.1
"""Of a processor, for one that starts on a machine that is busy with others."""


class Starting(Protocol):
    """A process that has not started yet."""

    def started(self) -> None:
        """Note how far it has got."""

    def go_on_starting(self, share: float) -> None:
        """It has so much of a processor from now on."""


class SimulatedHost:
    """See the module."""

    def __init__(self, world: World, parameters: Parameters, record: RecordEvent,
                 snapshot: Callable[..., None], load: float = 0.0, keep: KeepWorking | None = None) -> None:
        """`snapshot(tensors, meta)` keeps one for the loss curve; `load`: the share of a processor that a learner needs
        to keep its pace; `keep(node, incarnation, working)` keeps what something was computed from."""
        self.keep: KeepWorking = keep or (lambda *_: None)
        self._load, self._training = load, 0
        self.world, self.parameters, self.record, self.snapshot = world, parameters, record, snapshot
        self.sizes = Sizes(parameters.payload)
        self.checkpoints: dict[int, dict[str, Content]] = {}
        """Parts by checkpoint and node."""
        self.numbers, self.pids = count(1), count(1001)
        """Of connections, and of processes."""
        self._starting: list[Starting] = []

    def save(self, node: str, effect: Save) -> None:
        """A node's part of a checkpoint; older ones that may go, go."""
        self.checkpoints.setdefault(effect.checkpoint, {})[node] = Content(effect.tensors, effect.meta)
        for number in [number for number in self.checkpoints if number < effect.keep]:
            del self.checkpoints[number]

    def trains(self, more: int) -> None:
        """So many more learners are up, or less."""
        self._training += more

    def starts(self, process: Starting, starting: bool) -> None:
        """Note that a process begins to start, or does so no more. Processes that start share what the others leave of
        the machine's processors: a learner that keeps its pace needs less than its fair share, and gets all of that."""
        for other in self._starting:
            other.started()
        if starting:
            self._starting.append(process)
        elif process in self._starting:
            self._starting.remove(process)
        free = self.parameters.cores - self._load * self._training
        share = min(1.0, max(_LEAST_SHARE, free / max(1, len(self._starting))))
        for other in self._starting:
            other.go_on_starting(share)
