"""Which state machine a node runs: the same ones on sockets, in containers and under virtual time."""

from __future__ import annotations

from diloco_chaos.harness.base.tensors import Tensors
from diloco_chaos.harness.record.storage.disk import Content, Disk
from diloco_chaos.harness.trainer.config.cluster_config import TrainerConfig
from diloco_chaos.harness.trainer.coordinator.fragment_state import restore
from diloco_chaos.harness.trainer.coordinator.syncer import Syncer
from diloco_chaos.harness.trainer.data_parallel.blocking import DataParallel
from diloco_chaos.harness.trainer.data_parallel.elastic import ElasticDataParallel
from diloco_chaos.harness.trainer.data_parallel.group_checkpoint import GroupCheckpoint
from diloco_chaos.harness.trainer.data_parallel.hub import Hub
from diloco_chaos.harness.trainer.data_parallel.worker import DataParallelWorker
from diloco_chaos.harness.trainer.learner.learner import Learner
from diloco_chaos.harness.trainer.model.replica import Replica


def syncer_core(config: TrainerConfig, disk: Disk, initial: Tensors, incarnation: int) -> Syncer | Hub:
    """Return the syncer, which goes on from its committed state; where gradients are averaged, the hub.

    Raises:
        CheckpointError: its state can't be trusted.
    """
    if config.averages_gradients:
        hub = ElasticDataParallel if config.mode == "elastic_data_parallel" else DataParallel
        return hub(config, GroupCheckpoint.restored(disk, config, initial), incarnation)
    restored = restore(disk, config.fragment_table(), initial, config.warm_start)
    return Syncer(config, restored, incarnation)


def learner_core(config: TrainerConfig, name: str, incarnation: int, token: str, replica: Replica,
                 part: Content | None = None) -> Learner | DataParallelWorker:
    """A learner; where gradients are averaged, a peer. `part`: what it was at the checkpoint that its run resumes."""
    if config.averages_gradients:
        return DataParallelWorker(config, name, incarnation, token, replica)
    learner = Learner(config, name, incarnation, token, replica)
    if part is not None:
        learner.restore(part)
    return learner
