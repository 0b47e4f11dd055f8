"""The engine goes away in the middle of a run: inconclusive, what was recorded is kept, nothing is left behind."""

import os
import time

import pytest

from diloco_chaos.chaos.report.live import NullAudience
from diloco_chaos.chaos.runner import backends
from diloco_chaos.chaos.runner.run import exit_code, run_plan
from diloco_chaos.chaos.scenario.loading import parse
from diloco_chaos.chaos.scenario.plan import freeze
from diloco_chaos.harness.places.compose.engine import DockerEngine, EngineError
from diloco_chaos.harness.places.compose.engine_restart import ENGINE_RESTART
from diloco_chaos.harness.record.undo_log import undo_logs_folder

WITHIN_S = 90

SCENARIO = """diloco_chaos: 1
name: engine
deadline: 90s
cluster: {model: micro, corpus: markov, fragments: 4, batch: 4, learners: 2, budget: 2000, step_time: 60ms,
          snapshots: 4, heartbeat_timeout: 2s}
faults:
  - {restart_engine: syncer, at: 1s}
"""


def labelled():
    try:
        engine = DockerEngine()
    except EngineError:
        return ["the engine does not answer yet"]
    try:
        return engine.labelled()
    finally:
        engine.close()


def test_a_run_whose_engine_is_restarted_proves_nothing_keeps_its_tape_and_leaves_nothing(engine_there, tmp_path):
    if not os.environ.get(ENGINE_RESTART):
        pytest.skip(f"{ENGINE_RESTART} does not say how to restart the engine")
    result = run_plan(freeze(parse(SCENARIO), 0), tmp_path, NullAudience(), backends.named("compose"))
    assert exit_code(result) == 3
    assert "the Docker engine went away in the middle of the run" in result.outcome.message
    assert "Kept: the tape, the checkpoints" in result.outcome.message
    assert result.history.merges, "what was recorded before is there"
    assert list((result.folder.path / "state").glob("*.safetensors"))
    end = time.monotonic() + WITHIN_S
    while (left := [*labelled(), *undo_logs_folder().glob("*.jsonl")]) and time.monotonic() < end:
        time.sleep(0.5)
    assert left == []
