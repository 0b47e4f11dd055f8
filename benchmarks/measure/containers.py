"""What containers cost, and what is left of them: `python -m benchmarks.measure.containers --kills 30`.

Start of the cluster with warm images, the flagship's wall time, punctuality and recovery as
`benchmarks.measure.recovery` has them, the image's size; and harnesses killed at random moments, alone or together with
their reaper, after which `clean` is called as the next start would: then nothing labelled may be on the engine. JSON on
standard output.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.measure import recovery
from diloco_chaos.chaos.evidence.history import History
from diloco_chaos.chaos.report.live import NullAudience
from diloco_chaos.chaos.runner import backends
from diloco_chaos.chaos.runner.cleanup import clean
from diloco_chaos.chaos.runner.run import Result, run_plan
from diloco_chaos.chaos.scenario.loading import load
from diloco_chaos.chaos.scenario.model import COORDINATOR
from diloco_chaos.chaos.scenario.plan import Plan, freeze
from diloco_chaos.harness.base.processes import Identity, identity
from diloco_chaos.harness.places.compose import compose_file
from diloco_chaos.harness.places.compose.engine import DockerEngine
from diloco_chaos.harness.record.tape.events import Begin, Hello

WITHIN_S = 60.0
_LONGEST_S = 9.0
_BOTH = 0.3
"""Share of kills that hit the reaper in the same moment."""

SCENARIO = """diloco_chaos: 1
name: soak-containers
deadline: 100s
cluster: {model: micro, corpus: markov, fragments: 4, batch: 4, learners: 3, budget: 3000, step_time: 60ms,
          snapshots: 4, heartbeat_timeout: 2s}
faults:
  - {pause: learner-1, at: 0s, for: 30s}
  - {disconnect: learner-2, at: 0s, for: 30s}
  - {straggler: learner-3, at: 1s, for: 30s}
  - {kill: syncer, at: 2s, restart_after: 500ms}
  - {latency: learner-1, at: 1s, for: 30s}
"""


def perform(plan: Plan, runs: Path) -> Result:
    """Run a plan in containers."""
    return run_plan(plan, runs, NullAudience(), backends.named("compose"))


def measure(runs: Path, kills: int, say: Callable[[str], None]) -> dict[str, Any]:
    """Everything that the documentation states about containers."""
    starts: list[tuple[float, float]] = []

    def noted(plan: Plan) -> Result:
        result = perform(plan, runs)
        starts.append(_start(result.history))
        return result
    walls = []
    for _ in ("references trained first", "references cached"):
        began = time.monotonic()
        flagship = noted(freeze(load("flagship")[0], 0))
        walls.append(time.monotonic() - began)
        say(f"flagship: exit {flagship.judgement.exit_code} {flagship.judgement.inconclusive} {walls[-1]:.1f} s")
    recoveries = recovery.measure(noted, kills)
    heard, steady = zip(*starts, strict=True)
    engine = DockerEngine()
    try:
        image = engine.client.images.get(compose_file.service(compose_file.find(), "syncer")["image"])
        return {"start_s": {"learners_heard": recovery.spread(list(heard)), "steady": recovery.spread(list(steady))},
                "flagship": {"first_s": round(walls[0], 1), "references_cached_s": round(walls[1], 1),
                             "exit_code": flagship.judgement.exit_code},
                "recovery": recoveries, "image_mb": round(image.attrs["Size"] / 1e6),
                "left_behind": soak(kills, engine, say)}
    finally:
        engine.close()


def _start(history: History) -> tuple[float, float]:
    """Seconds from the run's begin until the syncer had heard every learner, and to the steady state."""
    start = history.tape.of(Begin, node="harness")[0].t
    first = {event.learner: event.t for event in reversed(history.tape.of(Hello, node=COORDINATOR))}
    return round(max(first.values()) - start, 2), round((history.zero or float("nan")) - start, 2)


def soak(kills: int, engine: DockerEngine, say: Callable[[str], None]) -> dict[str, Any]:
    """Kill harnesses at random moments; what of theirs is on the engine a minute later, at the latest."""
    chance = random.Random(0)
    took, left = [], 0
    with tempfile.TemporaryDirectory(prefix="diloco-chaos-containers-") as folder:
        file = Path(folder) / "soak.yaml"
        file.write_text(SCENARIO)
        for number in range(kills):
            moment, both = chance.uniform(0.5, _LONGEST_S), chance.random() < _BOTH
            process = subprocess.Popen(
                [sys.executable, "-m", "diloco_chaos", "run", str(file), "--on", "compose", "--runs-dir", folder],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
            time.sleep(moment)
            _strike(process, both)
            killed = time.monotonic()
            if both:
                clean()
            while (remaining := engine.labelled()) and time.monotonic() < killed + WITHIN_S:
                time.sleep(0.1)
            took.append(time.monotonic() - killed)
            left += len(remaining)
            say(f"kill {number}: {'with' if both else 'without'} its reaper after {moment:.1f} s, "
                f"{len(remaining)} left after {took[-1]:.1f} s")
    return {"kills": kills, "left": left, "median_s": round(median(took), 2), "longest_s": round(max(took), 2)}


def _strike(process: subprocess.Popen[bytes], both: bool) -> None:
    if both:
        os.kill(process.pid, signal.SIGSTOP)  # so that it does not see its reaper's end
        for reaper in _reapers(process.pid):
            os.kill(reaper.pid, signal.SIGKILL)
    process.kill()
    process.wait()


def _reapers(harness: int) -> list[Identity]:
    """The children of a harness that are reapers."""
    reapers = []
    for task in Path(f"/proc/{harness}/task").iterdir():
        for child in (task / "children").read_text().split():
            process = identity(int(child))
            if process and b"diloco_chaos.harness.record.reaper" in Path(f"/proc/{child}/cmdline").read_bytes():
                reapers.append(process)
    return reapers


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=30)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="diloco-chaos-bench-") as folder:
        print(json.dumps(measure(Path(folder), options.kills, lambda text: print(text, file=sys.stderr, flush=True)),
                         indent=2))


if __name__ == "__main__":
    main()
