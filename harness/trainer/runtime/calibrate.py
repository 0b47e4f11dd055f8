"""How long an inner step takes on this machine, in seconds.

    python -m diloco_chaos.harness.trainer.runtime.calibrate TOGETHER < trainer.json
"""

from __future__ import annotations

import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from statistics import median

from diloco_chaos.harness.trainer.config.cluster_config import TrainerConfig
from diloco_chaos.harness.trainer.model.corpus import needed_bytes
from diloco_chaos.harness.trainer.runtime.replica_factory import replicas

_WARM_UP, _STEPS = 3, 20


def measure(config: TrainerConfig, together: int) -> float:
    """Median seconds of an inner step while `together` learners compute at the same time, as they do in a cluster."""
    with tempfile.NamedTemporaryFile(suffix=".bin") as file:
        file.write(bytes(range(256)) * (needed_bytes(config.spec.context) // 256 + 1))
        file.flush()
        with ProcessPoolExecutor(together, get_context("fork")) as pool:
            learners = pool.map(_steps, [config] * together, [Path(file.name)] * together)
            return median(seconds for times in learners for seconds in times)


def _steps(config: TrainerConfig, corpus_file: Path) -> list[float]:
    replica = replicas(config, corpus_file, config.spec.initial(config.seed))(0)
    times = []
    for step in range(_WARM_UP + _STEPS):
        began = time.monotonic()
        replica.train(step, config.lr)
        times.append(time.monotonic() - began)
    return times[_WARM_UP:]


if __name__ == "__main__":
    wanted = TrainerConfig.model_validate_json(sys.stdin.read())
    print(measure(wanted, max(1, min(wanted.learners, int(sys.argv[1])))))
