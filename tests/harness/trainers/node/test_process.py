"""A node's process: how it ends, and what it says of that."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from diloco_chaos.harness.base.processes import TOKEN
from diloco_chaos.harness.record.tape.events import Exit, Listening
from diloco_chaos.harness.record.tape.reading import Tape
from diloco_chaos.harness.trainer.config.cluster_config import TrainerConfig


@pytest.fixture
def syncer(tmp_path, request):
    """A syncer that listens, and its run's folder."""
    settings = tmp_path / "given.json"
    given = getattr(request, "param", {"model": "quadratic"})
    settings.write_text(TrainerConfig.model_validate(given).model_dump_json())
    process = subprocess.Popen([sys.executable, "-m", "diloco_chaos.harness.trainers.node.process", "--role", "syncer",
                                "--name", "syncer", "--run", str(tmp_path), "--alone", str(settings)],
                               env=os.environ | {TOKEN: "t" * 32})
    until = time.monotonic() + 30
    while not Tape.read(tmp_path / "tape").of(Listening):
        assert process.poll() is None
        assert time.monotonic() < until
        time.sleep(0.02)
    yield process, tmp_path
    process.kill()
    process.wait()


def test_one_that_is_told_to_end_ends_in_good_order_and_says_that_it_was_told(syncer):
    process, run = syncer
    process.terminate()
    assert process.wait(20) == 0
    gone, = Tape.read(run / "tape").of(Exit)
    assert dict(gone.payload()) == {"told": True}


def test_one_that_is_killed_says_nothing(syncer):
    process, run = syncer
    process.kill()
    process.wait()
    assert Tape.read(run / "tape").of(Exit) == []


@pytest.mark.parametrize("syncer", [{"model": "small", "corpus": "markov"}], indirect=True)
def test_a_syncer_starts_without_torch_which_takes_seconds_to_import(syncer):
    process, _ = syncer
    mapped = Path(f"/proc/{process.pid}/maps").read_text()
    assert "numpy" in mapped
    assert "torch" not in mapped
