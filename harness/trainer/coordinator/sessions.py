"""What the syncer and the hub of data parallelism have in common: who is connected, the clock that all are told, and
global checkpoints. No I/O."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable

from diloco_chaos.harness.base.tensors import Tensors
from diloco_chaos.harness.trainer.config.cluster_config import TrainerConfig
from diloco_chaos.harness.trainer.protocol.messages import MESSAGES, Clock, Finish, Hello
from diloco_chaos.harness.trainers.api.sessions import P, PeerSessions
from diloco_chaos.harness.trainers.core.effects import Effect
from diloco_chaos.harness.trainers.core.roles import COORDINATOR
from diloco_chaos.harness.trainers.storage.global_checkpoint import GlobalCheckpoints
from diloco_chaos.harness.trainers.wire.messages import Message


class LearnerSessions(PeerSessions[P, Hello]):
    """See the module."""

    messages = MESSAGES
    introduction = Hello

    def __init__(self, config: TrainerConfig, incarnation: int) -> None:
        super().__init__(config, config.heartbeat_s)
        self.config = config
        self._checkpoints = GlobalCheckpoints(config.checkpoint_interval, incarnation)

    def on_saved(self, checkpoint: int, now: float) -> Iterable[Effect]:
        """Its own part of a checkpoint is on stable storage."""
        return self._checkpoints.saved(COORDINATOR, checkpoint)

    @abstractmethod
    def _clock(self, now: float) -> Clock:
        """Return where training stands."""

    def _standing(self, now: float) -> tuple[Message, Tensors]:
        return self._clock(now), {}

    def _end(self) -> tuple[Message, Tensors]:
        return Finish(), {}

    def _send_clock(self, now: float) -> Iterable[Effect]:
        return self._tell_all(*self._standing(now))
