"""What the harness costs: tokens per second with tape, links and supervision, against the same processes bare."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from diloco_chaos.chaos.evidence.run_folder import RunFolder
from diloco_chaos.chaos.report.live import NullAudience
from diloco_chaos.chaos.runner.backends import named
from diloco_chaos.chaos.runner.cleanup import cleanup_guard
from diloco_chaos.chaos.runner.experiment import Experiment
from diloco_chaos.chaos.runner.node_specs import node_specs
from diloco_chaos.chaos.runner.simulate import data_file
from diloco_chaos.chaos.scenario.loading import parse
from diloco_chaos.chaos.scenario.plan import Plan, freeze
from diloco_chaos.harness.base.processes import TOKEN
from diloco_chaos.harness.record.storage import checkpoint
from diloco_chaos.harness.trainers.node.settings import SETTINGS, NodeSettings

SCENARIO = """diloco_chaos: 1
name: bench-overhead
cluster: {budget: 300 steps, step_time: 0s, snapshots: 10}
"""
ROUNDS = 3


def measure(runs: Path, say: Callable[[str], None]) -> dict[str, Any]:
    """Interleaved runs without pace: bare, harnessed, bare, ...; the ratio of the medians, and of each pair."""
    plan = freeze(parse(SCENARIO), 0)
    settings = NodeSettings(trainer=plan.trainer.path, cluster=plan.cluster, data=data_file(plan),
                            evidence="sampled")
    bare, harnessed = [], []
    for number in range(ROUNDS):
        folders = [RunFolder.create(runs, f"{kind}-{number}") for kind in ("bare", "harnessed")]
        bare.append(_bare(plan, folders[0], settings))
        with cleanup_guard() as undo_log:
            Experiment(plan, named("local").stage(plan, folders[1], settings, undo_log), NullAudience()).perform()
        harnessed.append(_rate(folders[1]))
        say(f"  overhead {number}: bare {bare[-1]:.0f}, harnessed {harnessed[-1]:.0f} tokens/s")
    return {"bare_tokens_per_s": round(median(bare)), "harnessed_tokens_per_s": round(median(harnessed)),
            "ratio": round(median(harnessed) / median(bare), 3), "pace": "none",
            "pairs": [round(harnessed_rate / bare_rate, 3)
                      for bare_rate, harnessed_rate in zip(bare, harnessed, strict=True)]}


def _bare(plan: Plan, folder: RunFolder, settings: NodeSettings) -> float:
    """The same processes, connected directly, recording nothing, with nobody who watches them."""
    (folder.path / SETTINGS).write_text(settings.model_copy(update={"evidence": "off"}).model_dump_json(by_alias=True))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    processes = []
    for spec in node_specs(plan, folder.path, time.monotonic()):
        argv = spec.command(0, python=sys.executable, host="127.0.0.1", listen=port, connect=f"127.0.0.1:{port}")
        processes.append(subprocess.Popen(
            [*argv, "--no-tape"], env=os.environ | {"OMP_NUM_THREADS": "1", TOKEN: "bench"},
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
    processes[0].wait()
    for process in processes[1:]:
        process.wait()
    return _rate(folder)


def _rate(folder: RunFolder) -> float:
    """Processed tokens per second between the first snapshot after the start and the last one."""
    metas = [checkpoint.load(path)[1] for path in sorted((folder.path / "snapshots").glob("*.safetensors"))[1:]]
    return float((metas[-1]["processed"] - metas[0]["processed"]) / (metas[-1]["t"] - metas[0]["t"]))


if __name__ == "__main__":
    sys.exit("run it as: python -m benchmarks.bench --only overhead")
