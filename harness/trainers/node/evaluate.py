"""Held-out loss of every snapshot of a run.

`python -m diloco_chaos.harness.trainers.node.evaluate RUN [PARENT]` writes `curve.json`, and how many it has measured,
of how many, to standard output.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from diloco_chaos.harness.base.parent_death import die_with_parent
from diloco_chaos.harness.record.storage.files import write_whole

if TYPE_CHECKING:
    from diloco_chaos.harness.base.tensors import Tensors


def evaluate(run: Path, tell: Callable[[int, int], None]) -> None:
    """Write the loss curve to `curve.json`: per snapshot processed and merged tokens, time (s since the run began) and
    loss. `tell` is called with how many snapshots are done, and of how many.

    Raises:
        CheckpointError: a snapshot can't be trusted.
        TrainerError: the trainer writes no snapshots.
    """
    from diloco_chaos.harness.record.storage.checkpoint import load
    from diloco_chaos.harness.trainers.node.settings import SETTINGS, NodeSettings
    settings = NodeSettings.model_validate_json((run / SETTINGS).read_text())
    curve = []
    if snapshots := sorted((run / "snapshots").glob("*.safetensors")):
        trainer = settings.trainer
        loss = trainer.workload(settings.data, trainer.initial(), threads=2).evaluator()
        for done, path in enumerate(snapshots, 1):
            curve.append(point(loss, *load(path)))
            tell(done, len(snapshots))
    write_whole(run / "curve.json", json.dumps({"curve": curve}) + "\n")


def point(loss: Callable[[Tensors], float], tensors: Tensors, meta: Mapping[str, Any]) -> dict[str, Any]:
    """Return a snapshot's point of the loss curve: its counts and time, as its metadata have them, and the loss of a
    model with these weights."""
    return {"number": meta["number"], "processed": meta["processed"], "merged": meta["merged"],
            "t": round(meta["t"], 3), "loss": round(loss(tensors), 5)}


def main() -> None:
    """Evaluate the run named on the command line."""
    run = Path(sys.argv[1])
    if len(sys.argv) > 2:
        die_with_parent(int(sys.argv[2]))
    evaluate(run, partial(print, flush=True))


if __name__ == "__main__":
    main()
