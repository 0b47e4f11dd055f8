"""Synchronous data parallelism on the same wire: the run that Decoupled DiLoCo's loss is held against.

Every step each peer sends its gradient to the hub, the hub sends the mean to all, and all take the same optimizer
step. Nothing here survives the loss of a peer: that is the point of the comparison.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from harness.trainer.config import TrainerConfig
from harness.trainer.effects import Close, Compute, Effect, Record, Send, Snapshot, Stop
from harness.trainer.messages import AnyMessage, Average, Finish, Gradient, Hello, Welcome
from harness.trainer.replica import Replica
from harness.trainer.schedule import learning_rate, snapshot_marks
from harness.trainer.tensors import Tensors


class Hub:
    """Averages the gradients of all M peers, in the order of their names, step after step."""

    def __init__(self, config: TrainerConfig) -> None:
        self.config = config
        self.step = 0
        self._names: dict[int, str] = {}
        self._gradients: dict[str, Tensors] = {}

    def status(self) -> dict[str, object]:
        """For people who ask."""
        return {"step": self.step, "processed": self._processed, "peers": sorted(self._names.values())}

    def start(self, now: float) -> Iterable[Effect]:
        """The first effects of a new process."""
        yield Record("initial", {"versions": [], "digests": [], "step": 0, "processed": 0})

    def on_message(self, connection: int, message: AnyMessage, tensors: Tensors, now: float) -> Iterable[Effect]:
        """A whole frame arrived."""
        if isinstance(message, Hello):
            self._names[connection] = message.node
            yield Record("hello", {"learner": message.node, "incarnation": message.incarnation})
            yield Send(Welcome(step=self.step, tokens=self._processed, position=0, steady=False), to=connection)
        elif isinstance(message, Gradient) and connection in self._names and message.step == self.step:
            self._gradients[self._names[connection]] = tensors
            if len(self._gradients) == self.config.learners:
                yield from self._average()
        else:
            yield Close(connection, f"unexpected {message.type}")

    def on_lost(self, connection: int, reason: str, now: float) -> Iterable[Effect]:
        """A peer is gone: the run stands still until the harness ends it."""
        yield Record("lost", {"learner": self._names.pop(connection, "?"), "reason": reason})

    def on_timer(self, key: str, now: float) -> Iterable[Effect]:
        """No timers."""
        return ()

    def on_mark(self, key: str, now: float) -> Iterable[Effect]:
        """No marks."""
        return ()

    @property
    def _processed(self) -> int:
        return self.step * self.config.tokens_per_step * self.config.learners

    def _average(self) -> Iterable[Effect]:
        ordered = [self._gradients[name] for name in sorted(self._gradients)]
        mean: Tensors = {key: np.asarray(np.mean([gradient[key] for gradient in ordered], axis=0, dtype=np.float32))
                         for key in ordered[0]}
        self._gradients = {}
        for connection in self._names:
            yield Send(Average(step=self.step, tokens=self._processed), mean, to=connection)
        self.step += 1
        yield Record("reduced", {"step": self.step, "processed": self._processed})
        if self._processed >= self.config.budget_tokens:
            yield Record("finished", {"step": self.step, "processed": self._processed, "merged": self._processed})
            for connection in self._names:
                yield Send(Finish(), to=connection)
            yield Stop("finished")


class Peer:
    """One data-parallel peer; the first one writes the snapshots."""

    def __init__(self, config: TrainerConfig, name: str, incarnation: int, token: str, replica: Replica) -> None:
        self.config, self.name, self.incarnation, self._token, self.replica = config, name, incarnation, token, replica
        self.step = 0
        self._marks = snapshot_marks(config) if name == config.names[0] else []
        self._names = tuple(config.spec.shapes())

    def status(self) -> dict[str, object]:
        """For people who ask."""
        return {"step": self.step}

    def on_connected(self, now: float) -> Iterable[Effect]:
        """A new connection stands."""
        yield Send(Hello(token=self._token, node=self.name, incarnation=self.incarnation, step=self.step, tokens=0,
                         position=self.step, versions=[], steps=[]))

    def on_lost(self, reason: str, now: float) -> Iterable[Effect]:
        """The hub is gone, and with it this run."""
        yield Record("disconnected", {"reason": reason, "step": self.step})
        yield Stop("the hub is gone")

    def on_message(self, message: AnyMessage, tensors: Tensors, now: float) -> Iterable[Effect]:
        """A whole frame arrived."""
        if isinstance(message, Welcome):
            yield from self._snapshots()
            yield Compute(self.step, 0.0)
        elif isinstance(message, Average):
            self.replica.apply(tensors, learning_rate(self.config, message.tokens))
            self.step += 1
            yield from self._snapshots()
            yield Compute(self.step, 0.0)
        elif isinstance(message, Finish):
            yield Record("finished", {"step": self.step, "tokens": self.step * self.config.tokens_per_step})
            yield Stop("finished")

    def on_gradient(self, loss: float, gradient: Tensors, began: float, now: float) -> Iterable[Effect]:
        """The gradient that `Compute` asked for is there."""
        yield Record("step", {"step": self.step + 1, "tokens": self.config.tokens_per_step, "loss": round(loss, 4),
                              "position": self.step, "began": round(began, 6)})
        yield Send(Gradient(step=self.step), gradient)

    def on_timer(self, key: str, now: float) -> Iterable[Effect]:
        """No timers."""
        return ()

    def _snapshots(self) -> Iterable[Effect]:
        processed = self.step * self.config.tokens_per_step * self.config.learners
        while self._marks and processed >= self._marks[0][1]:
            number = self._marks.pop(0)[0]
            yield Snapshot(self.replica.read(self._names), {"number": number, "processed": processed,
                                                            "merged": processed, "step": self.step})
