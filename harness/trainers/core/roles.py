"""What a node's process drives: state machines without I/O, one that others connect to, and those that connect.

A core takes an input (a message, a timer, a computed step, a lost connection) and the time, and returns effects
(`harness.trainers.core.effects`), which its driver carries out in order. The same core runs on sockets
(`harness.trainers.node.server`, `harness.trainers.node.client`), in containers, and under virtual time
(`harness.simulation`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol, runtime_checkable

from diloco_chaos.harness.base.tensors import Tensors
from diloco_chaos.harness.record.tape.events import Event
from diloco_chaos.harness.trainers.core.effects import Compute, Effect
from diloco_chaos.harness.trainers.core.memory import Corruption
from diloco_chaos.harness.trainers.wire.messages import Message, Vocabulary

COORDINATOR = "syncer"
"""The name of the node that all others talk to, where a trainer has one."""
ROUNDS = "rounds"
"""What the event log of a trainer without a coordinator has its rounds under: no node has that name."""


class Core(Protocol):
    """The interface that every core has."""

    @property
    def messages(self) -> Vocabulary:
        """Return the messages that it understands."""
        ...

    @property
    def steady(self) -> bool:
        """Return whether it knows that the steady state was reached: failpoints are counted from there."""
        ...

    def on_timer(self, key: str, now: float) -> Iterable[Effect]:
        """A timer fired."""
        ...

    def on_saved(self, checkpoint: int, now: float) -> Iterable[Effect]:
        """Its part of a checkpoint is on stable storage."""
        ...

    def status(self) -> Mapping[str, Any]:
        """Return what it knows of the training, for people who ask."""
        ...


class Coordinator(Core, Protocol):
    """The core that others connect to, each by a numbered connection whose first frame has shown the run's token."""

    def start(self, now: float) -> Iterable[Effect]:
        """The process is up, and listens."""
        ...

    def on_message(self, connection: int, message: Message, tensors: Tensors, now: float) -> Iterable[Effect]:
        """A whole frame arrived."""
        ...

    def on_lost(self, connection: int, reason: str, now: float) -> Iterable[Effect]:
        """A connection ended."""
        ...


class Worker(Core, Protocol):
    """A core that connects, and trains: its steps are computed beside its I/O."""

    name: str
    incarnation: int

    @property
    def heartbeat_timeout(self) -> float:
        """Seconds without a word from the other end, after which the connection is given up."""
        ...

    def on_connected(self, now: float) -> Iterable[Effect]:
        """A new connection stands: introduce yourself."""
        ...

    def on_message(self, message: Message, tensors: Tensors, now: float) -> Iterable[Effect]:
        """A whole frame arrived."""
        ...

    def on_lost(self, reason: str, now: float) -> Iterable[Effect]:
        """The connection ended."""
        ...

    def compute(self, step: Compute) -> Any:
        """Do what a `Compute` asks for: called in a thread of its own, beside everything else."""
        ...

    def on_computed(self, result: Any, began: float, now: float) -> Iterable[Effect]:
        """`compute` is done; `began`: when it was."""
        ...


@runtime_checkable
class Corruptible(Protocol):
    """A worker whose memory can fail by order."""

    def corrupt(self, corruption: Corruption) -> Iterable[Event]:
        """Let it fail, between two steps; what its tape is to tell of it."""
        ...
