"""Held-out loss of every snapshot of a run.

`python -m harness.trainer.runtime.evaluate RUN [PARENT]` writes `curve.json`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.cleanup.parent_death import die_with_parent

if TYPE_CHECKING:
    from harness.trainer.algorithm.tensors import Tensors
    from harness.trainer.model.replica import Replica


def evaluate(run: Path) -> list[dict[str, Any]]:
    """The loss curve: per snapshot processed and merged tokens, time (s since the run began) and loss (nats per byte).

    Raises:
        CheckpointError: a snapshot can't be trusted.
    """
    from harness.trainer.runtime.node import SETTINGS, NodeSettings
    from harness.trainer.runtime.replica_factory import replicas
    from harness.trainer.storage.checkpoint import load
    settings = NodeSettings.model_validate_json((run / SETTINGS).read_text())
    config = settings.trainer
    model = replicas(config, settings.corpus_file, config.spec.initial(0), threads=2)(0)
    return [point(model, *load(path)) for path in sorted((run / "snapshots").glob("*.safetensors"))]


def point(model: Replica, tensors: Tensors, meta: Mapping[str, Any]) -> dict[str, Any]:
    """Of a snapshot: its counts and time, as its metadata have them, and the loss of a model with these weights."""
    from harness.trainer.model.replica import weights
    model.write(weights(tensors))
    return {"number": meta["number"], "processed": meta["processed"], "merged": meta["merged"],
            "t": round(meta["t"], 3), "loss": round(model.held_out_loss(), 5)}


def main() -> None:
    """Evaluate the run named on the command line."""
    run = Path(sys.argv[1])
    if len(sys.argv) > 2:
        die_with_parent(int(sys.argv[2]))
    temporary = run / "curve.json.partial"
    temporary.write_text(json.dumps({"curve": evaluate(run)}) + "\n")
    temporary.replace(run / "curve.json")


if __name__ == "__main__":
    main()
