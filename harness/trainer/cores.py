"""Which state machine a node runs: the same ones on sockets, in containers and under virtual time."""

from __future__ import annotations

from harness.trainer.config import TrainerConfig
from harness.trainer.disk import Disk
from harness.trainer.learner import Learner
from harness.trainer.replica import Replica
from harness.trainer.state import restore
from harness.trainer.syncer import Syncer
from harness.trainer.synchronous import Hub, Peer
from harness.trainer.tensors import Tensors


def syncer_core(config: TrainerConfig, disk: Disk, initial: Tensors, incarnation: int) -> Syncer | Hub:
    """The syncer, going on from what it had committed; in the synchronous mode the hub.

    Raises:
        CheckpointError: its state can't be trusted.
    """
    if config.mode == "data_parallel":
        return Hub(config)
    found = restore(disk, config.fragment_table(), initial, config.warm_start)
    return Syncer(config, found, incarnation)


def learner_core(config: TrainerConfig, name: str, incarnation: int, token: str, replica: Replica) -> Learner | Peer:
    """A learner; in the synchronous mode a peer."""
    kind = Peer if config.mode == "data_parallel" else Learner
    return kind(config, name, incarnation, token, replica)
