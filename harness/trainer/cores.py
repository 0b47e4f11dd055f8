"""Which state machine a node runs: the same ones on sockets, in containers and under virtual time."""

from __future__ import annotations

from harness.trainer.config import SYNCHRONOUS, TrainerConfig
from harness.trainer.data_parallel import DataParallel
from harness.trainer.disk import Content, Disk
from harness.trainer.elastic_data_parallel import ElasticDataParallel
from harness.trainer.hub import Hub
from harness.trainer.learner import Learner
from harness.trainer.peer import Peer
from harness.trainer.replica import Replica
from harness.trainer.saved import Saved
from harness.trainer.state import restore
from harness.trainer.syncer import Syncer
from harness.trainer.tensors import Tensors


def syncer_core(config: TrainerConfig, disk: Disk, initial: Tensors, incarnation: int) -> Syncer | Hub:
    """The syncer, going on from what it had committed; where gradients are averaged, the hub.

    Raises:
        CheckpointError: its state can't be trusted.
    """
    if config.mode in SYNCHRONOUS:
        hub = ElasticDataParallel if config.mode == "elastic_data_parallel" else DataParallel
        return hub(config, Saved.found(disk, config, initial), incarnation)
    found = restore(disk, config.fragment_table(), initial, config.warm_start)
    return Syncer(config, found, incarnation)


def learner_core(config: TrainerConfig, name: str, incarnation: int, token: str, replica: Replica,
                 part: Content | None = None) -> Learner | Peer:
    """A learner; where gradients are averaged, a peer. `part`: what it was at the cut that its run goes on from."""
    if config.mode in SYNCHRONOUS:
        return Peer(config, name, incarnation, token, replica)
    learner = Learner(config, name, incarnation, token, replica)
    if part is not None:
        learner.go_on_from(part)
    return learner
