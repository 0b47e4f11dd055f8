"""The cores of a whole cluster in one process under virtual time: for tests that lose a chosen message.

Every message takes `delay`, every inner step `compute`, learners begin at different phases of a step. Nothing else is
modelled here: no bandwidth, no jitter, no disk.
"""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from itertools import count
from typing import Any

from diloco_chaos.harness.base.tensors import Tensors
from diloco_chaos.harness.record.tape.events import Event
from diloco_chaos.harness.trainer.config.cluster_config import TrainerConfig
from diloco_chaos.harness.trainer.coordinator.fragment_state import (
    FragmentState,
    ProgressCounters,
    Restored,
    fragment_file,
)
from diloco_chaos.harness.trainer.coordinator.syncer import Syncer
from diloco_chaos.harness.trainer.learner.learner import Learner
from diloco_chaos.harness.trainer.model.replica import Replica
from diloco_chaos.harness.trainers.core.effects import (
    AtFailpoint,
    Close,
    Commit,
    Compute,
    Effect,
    Save,
    Send,
    Snapshot,
    Stop,
    Timer,
)
from diloco_chaos.harness.trainers.core.roles import COORDINATOR, Coordinator, Worker
from diloco_chaos.harness.trainers.wire.messages import Message

Lose = Callable[[str, str, Message], bool]
"""(sender, receiver, message) -> whether the connection breaks instead of delivering it."""


class InMemoryNodes(ABC):
    """Drives one core that others connect to, and those that connect: the plainest interpreter of effects there is."""

    def __init__(self, *, delay: float = 0.001, compute: float = 0.02, lose: Lose = lambda *_: False) -> None:
        self.now = 0.0
        self._delay, self._compute, self._lose = delay, compute, lose
        self.tape: list[Event] = []
        self.snapshots: list[tuple[dict[str, Any], Tensors]] = []
        self.disk: dict[str, tuple[Tensors, dict[str, Any]]] = {}
        self.over = False
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self._connections: dict[str, int] = {}  # learner -> its connection, while it stands
        self._names: dict[int, str] = {}
        self._numbers = count(1)
        self._timers: dict[tuple[str, str], float] = {}
        self.learners: dict[str, Any] = {}
        self.incarnations: dict[str, int] = {COORDINATOR: 0}
        self.syncer: Any

    @abstractmethod
    def new_syncer(self) -> Coordinator:
        """The core of a new syncer process: from what was committed, or from the beginning."""

    @abstractmethod
    def new_learner(self, name: str) -> Worker:
        """The core of a new process of this learner."""

    # -- what a test does to it ----------------------------------------------------------------------------------

    def start_syncer(self) -> None:
        """A new syncer process."""
        self.syncer = self.new_syncer()
        self._do(COORDINATOR, self.syncer.start(self.now))

    def restart_syncer(self) -> None:
        """Kill the syncer and start it again: every connection breaks."""
        self.incarnations[COORDINATOR] += 1
        for name in list(self._connections):
            self.disconnect(name, tell_syncer=False)
        self.start_syncer()

    def start_learner(self, name: str) -> None:
        """A new process of this learner."""
        if name in self._connections:
            self.disconnect(name, reconnect=False)
        self.incarnations[name] = self.incarnations.get(name, -1) + 1
        self.learners[name] = self.new_learner(name)
        self._connect(name)

    def disconnect(self, name: str, reconnect: bool = True, tell_syncer: bool = True) -> None:
        """Break a learner's connection; what is under way is lost."""
        connection = self._connections.pop(name, None)
        if connection is None:
            return
        del self._names[connection]
        if tell_syncer:
            self._do(COORDINATOR, self.syncer.on_lost(connection, "broken", self.now))
        if reconnect:
            self._do(name, self.learners[name].on_lost("broken", self.now))
            self._at(self._delay, lambda: self._connect(name))

    def run(self, until: float = float("inf")) -> None:
        """Advance virtual time."""
        while self._queue and not self.over and self._queue[0][0] <= until:
            self.now, _, action = heapq.heappop(self._queue)
            action()

    # -- the driver ----------------------------------------------------------------------------------------------

    def _at(self, after: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._queue, (self.now + after, next(self._order), action))

    def _connect(self, name: str) -> None:
        if name in self._connections:
            return
        connection = next(self._numbers)
        self._connections[name], self._names[connection] = connection, name
        self._do(name, self.learners[name].on_connected(self.now))

    def _do(self, node: str, effects: Iterable[Effect]) -> None:
        for effect in list(effects):
            match effect:
                case Send():
                    self._send(node, effect)
                case Timer():
                    self._timers[node, effect.key] = effect.at
                    self._at(effect.at - self.now, lambda effect=effect: self._fire(node, effect))  # type: ignore[misc]
                case Compute():
                    self._train(node, effect)
                case Event():
                    self.tape.append(effect.stamped(self.now, node, self.incarnations[node]))
                case Commit():
                    self.disk[effect.name] = (effect.tensors, effect.meta)
                case Save():
                    core = self.syncer if node == COORDINATOR else self.learners[node]
                    self._at(self._delay, lambda core=core, effect=effect: self._do(  # type: ignore[misc]
                        node, core.on_saved(effect.checkpoint, self.now)))
                case Snapshot():
                    self.snapshots.append((effect.meta, effect.tensors))
                case Close():
                    if effect.to in self._names:
                        self.disconnect(self._names[effect.to], tell_syncer=False)
                case Stop():
                    self.over = self.over or node == COORDINATOR
                case AtFailpoint():
                    pass

    def _send(self, node: str, effect: Send) -> None:
        connection = effect.to if node == COORDINATOR else self._connections.get(node)
        if connection not in self._names:
            return
        learner = self._names[connection]
        receiver = learner if node == COORDINATOR else COORDINATOR
        if effect.sent:
            self.tape.append(effect.sent.stamped(self.now, node, self.incarnations[node]))
        if self._lose(node, receiver, effect.message):
            self._at(0, lambda: self.disconnect(learner))
            return

        def deliver() -> None:
            if self._names.get(connection) != learner:
                return
            if receiver == COORDINATOR:
                self._do(COORDINATOR, self.syncer.on_message(connection, effect.message, effect.tensors, self.now))
            else:
                self._do(learner, self.learners[learner].on_message(effect.message, effect.tensors, self.now))
        self._at(self._delay, deliver)

    def _fire(self, node: str, timer: Timer) -> None:
        if self._timers.get((node, timer.key)) == timer.at:
            core = self.syncer if node == COORDINATOR else self.learners[node]
            self._do(node, core.on_timer(timer.key, self.now))

    def _train(self, name: str, effect: Compute) -> None:
        learner, began = self.learners[name], self.now
        result = learner.compute(effect)
        self._at(self._compute, lambda: self._computed(name, learner, result, began))

    def _computed(self, name: str, learner: Worker, result: Any, began: float) -> None:
        if self.learners[name] is learner:
            self._do(name, learner.on_computed(result, began, self.now))


class InMemoryCluster(InMemoryNodes):
    """One syncer and M learners; `run` goes on until training is over or `until` (virtual seconds)."""

    learners: dict[str, Learner]
    syncer: Syncer

    def __init__(self, config: TrainerConfig, make_replica: Callable[[int], Replica], initial: Tensors, *,
                 delay: float = 0.001, compute: float = 0.02, lose: Lose = lambda *_: False) -> None:
        """`make_replica(index)` makes the replica of a new process of learner `index` (0-based)."""
        super().__init__(delay=delay, compute=compute, lose=lose)
        self.config, self._make_replica, self._initial = config, make_replica, initial
        self.start_syncer()
        for index, name in enumerate(config.names):
            self._at(index * config.step_time / config.learners, lambda name=name: self.start_learner(name))  # type: ignore[misc]

    def new_syncer(self) -> Syncer:
        """From what was committed, or from the beginning."""
        found = Restored([], ProgressCounters(self.config.warm_start), resumed=bool(self.disk))
        for fragment in self.config.fragment_table():
            stored = self.disk.get(fragment_file(fragment.index))
            if stored:
                found.states.append(FragmentState.restored(*stored))
                found.counters.absorb(stored[1]["counters"])
            else:
                found.states.append(FragmentState.initial({name: self._initial[name] for name in fragment.names}))
                found.to_commit.append(fragment.index)
        return Syncer(self.config, found, self.incarnations[COORDINATOR])

    def new_learner(self, name: str) -> Learner:
        """Without a part of a checkpoint."""
        replica = self._make_replica(self.config.names.index(name))
        return Learner(self.config, name, self.incarnations[name], "token", replica)


