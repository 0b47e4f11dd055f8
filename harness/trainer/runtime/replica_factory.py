"""Which model a learner trains, and on what: a transformer on a corpus, or a problem whose answer is known."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from diloco_chaos.harness.base.tensors import Tensors
from diloco_chaos.harness.record.undo_log import UndoLog
from diloco_chaos.harness.trainer.config.cluster_config import TrainerConfig
from diloco_chaos.harness.trainer.model.corpus import Corpus, HeldOut, materialize, needed_bytes
from diloco_chaos.harness.trainer.model.quadratic import Quadratic, QuadraticSpec
from diloco_chaos.harness.trainer.model.replica import Replica, weights
from diloco_chaos.harness.trainer.model.spec import ModelSpec

MakeReplica = Callable[[int], Replica]
"""make(index): a new replica for learner `index`, counted from 0."""


def corpus_for(config: TrainerConfig, folder: Path, undo_log: UndoLog | None = None) -> tuple[Path | None, str]:
    """The file with what the model is trained on, made in this folder if need be, and its digest; (None, "") for a
    model that needs none.

    Raises:
        CorpusError: it can't be used.
    """
    if isinstance(config.spec, QuadraticSpec):
        return None, ""
    return materialize(config.corpus, folder, needed_bytes(config.spec.context), undo_log)


def replicas(config: TrainerConfig, corpus_file: Path | None, initial: Tensors, threads: int = 1,
             held_out: HeldOut = "reported") -> MakeReplica:
    """Return a function that makes replicas; import torch where the model needs it, and let it use so many threads.
    `initial`: the run's start, of which AdamW's moments may be part. `held_out`: the windows that losses are measured
    on."""
    if isinstance(config.spec, QuadraticSpec):
        spec = config.spec
        return lambda index: Quadratic(spec, initial, config.seed, index)
    import torch

    from diloco_chaos.harness.trainer.model.transformer import Transformer
    assert isinstance(config.spec, ModelSpec), "there are two kinds of models"
    assert corpus_file is not None, "this kind needs one"
    torch.set_num_threads(threads)
    model = config.spec
    corpus = Corpus(corpus_file, model.context, config.learners, config.batches, config.seed, held_out)
    return lambda index: Transformer(model, initial, corpus, index, config.device, config.device != "cpu", config.seed)


def evaluator(model: Replica) -> Callable[[Tensors], float]:
    """Return a function that gives the held-out loss of weights, by a replica that is used for nothing else."""
    def loss(tensors: Tensors) -> float:
        model.write(weights(tensors))
        return model.held_out_loss()
    return loss
