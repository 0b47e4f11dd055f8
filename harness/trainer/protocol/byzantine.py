"""A learner that sends what no learner should: it speaks the wire's protocol from outside, in a real one's name."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import cast, get_args

import numpy as np

from diloco_chaos.harness.base.tensors import Tensors, digest
from diloco_chaos.harness.trainer.algorithm.codec import BLOCK
from diloco_chaos.harness.trainer.config.cluster_config import TrainerConfig
from diloco_chaos.harness.trainer.protocol.messages import (
    MESSAGES,
    Broadcast,
    Clock,
    Donation,
    Hello,
    OuterGradient,
    Report,
    Request,
    Welcome,
)
from diloco_chaos.harness.trainers.wire.impostor import About, Content
from diloco_chaos.harness.trainers.wire.messages import Message

_ABSURD = 10**12
_PAUSES_S = (0.02, 0.12)
_GOLDEN = 0.6180339887


class Rogue(ABC):
    """Takes a learner's place at the syncer. Implements `diloco_chaos.harness.trainers.wire.impersonation.Impostor`."""

    messages = MESSAGES

    def __init__(self, token: str, learner: str, incarnation: int, config: TrainerConfig) -> None:
        self._token, self._learner, self._incarnation = token, learner, incarnation
        self._table = config.fragment_table()
        self._turns = 0
        self.sent = 0
        """Messages that the syncer has taken. Others may have been lost, because the real learner took its place again.
        """

    @abstractmethod
    def on_message(self, message: Message, tensors: Tensors) -> list[tuple[Message, Tensors]]:
        """A frame came; what it says to that."""

    def hello(self) -> Hello:
        """Return the message that it sends first on every connection."""
        return Hello(token=self._token, node=self._learner, incarnation=self._incarnation, step=0, tokens=0, position=0,
                     versions=[-1] * len(self._table), steps=[0] * len(self._table))

    def pause(self) -> float:
        """Seconds until it comes back: ever others, spread evenly, so that it does not fall into step with the learner,
        which takes its place again at the pace of its own."""
        self._turns += 1
        low, high = _PAUSES_S
        return low + (high - low) * (self._turns * _GOLDEN % 1)


class Liar(Rogue):
    """Reports what no learner can have done, whenever the syncer says where training is."""

    def __init__(self, token: str, learner: str, incarnation: int, config: TrainerConfig, about: About) -> None:
        super().__init__(token, learner, incarnation, config)
        self._about = about

    def on_message(self, message: Message, tensors: Tensors) -> list[tuple[Message, Tensors]]:
        """A report for every clock: on its connection the syncer takes it before it sends the next."""
        if not isinstance(message, Clock):
            return []
        self.sent += 1
        absurd = {"step": 0, "tokens": 0, "position": 0, "version": 0, self._about: _ABSURD}
        return [(Report(step=absurd["step"], tokens=absurd["tokens"], position=absurd["position"], fragments=[
            (absurd["version"], 0, 0) for _ in self._table]), {})]


class Poisoner(Rogue):
    """Answers every request with poison, of which all but the values is right: it stands for one step, the one after
    where training is. A syncer that does not look at the values merges it. The syncer answers each that it has taken
    with the fragment's value."""

    def __init__(self, token: str, learner: str, incarnation: int, config: TrainerConfig, content: Content) -> None:
        super().__init__(token, learner, incarnation, config)
        self._content, self._codec, self._each = content, config.gradient_codec, config.tokens_per_step_of(learner)
        self._held: dict[int, tuple[int, Tensors]] = {}
        self._step = 0
        self._given: set[int] = set()

    def hello(self) -> Hello:
        """What was given on the connection before is not answered any more."""
        self._given.clear()
        return super().hello()

    def on_message(self, message: Message, tensors: Tensors) -> list[tuple[Message, Tensors]]:
        """A frame came; what it says to that."""
        if isinstance(message, Welcome):
            self._step = message.step + 1  # else nobody asks while it is there, if the real one is ahead of all others
        elif isinstance(message, Donation):
            for fragment, version in zip(self._table, message.versions, strict=True):
                self._held[fragment.index] = (version, {name: tensors[name] for name in fragment.names})
            self.sent += len(self._given)  # who has nothing any more that it could go on from is brought up to date
            self._given.clear()
            return self._claim()
        elif isinstance(message, Broadcast):
            before, value = self._held.get(message.fragment, (-1, tensors))  # of which the shapes are used
            self._held[message.fragment] = (message.version, tensors if message.base < 0 else value)
            if message.fragment in self._given:
                self._given.discard(message.fragment)
                self.sent += message.version == before  # a newer one is a merge's, and says nothing of the answer
            return self._claim()
        elif isinstance(message, Request) and message.fragment in self._held:
            self._given.add(message.fragment)
            return [self._answer(message)]
        return []

    def _claim(self) -> list[tuple[Message, Tensors]]:
        """Say that there is something to ask for."""
        if len(self._held) < len(self._table):
            return []
        return [(Report(step=self._step, tokens=self._each, position=0, fragments=[
            (self._held[fragment.index][0], 1, self._each) for fragment in self._table]), {})]

    def _answer(self, request: Request) -> tuple[Message, Tensors]:
        version, value = self._held[request.fragment]
        poisoned = {name: _poisoned(array, self._content) for name, array in value.items()}
        return OuterGradient(round=request.round, fragment=request.fragment, base_version=version,
                             first_step=self._step, last_step=self._step, steps=1, tokens=self._each,
                             digest=digest(poisoned)), self._codec.pack(poisoned, "")


def rogue(token: str, learner: str, incarnation: int, config: TrainerConfig, what: Content | About) -> Rogue:
    """One that sends this kind of poison, or lies about this."""
    if what in get_args(About):
        return Liar(token, learner, incarnation, config, cast("About", what))
    return Poisoner(token, learner, incarnation, config, cast("Content", what))


def _poisoned(array: np.ndarray[tuple[int, ...], np.dtype[np.float32]], content: Content,
              ) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    if content == "shape":
        return np.zeros(array.size + BLOCK, np.float32)  # more also where sizes are rounded up to whole blocks
    return np.full_like(array, np.nan if content == "nan" else np.inf)
