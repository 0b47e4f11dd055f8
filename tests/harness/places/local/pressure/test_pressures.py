"""What keeps this machine busy, and that nothing of it is left."""

import json
import os
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from diloco_chaos.harness.base.processes import family, identity, state, with_token
from diloco_chaos.harness.places.base import NodeSpec
from diloco_chaos.harness.places.local.pressure import limits
from diloco_chaos.harness.places.local.pressure.pressures import Pressures
from diloco_chaos.harness.places.pressure import Load
from diloco_chaos.harness.record.reaper import heal
from diloco_chaos.harness.record.undo_log import UndoLog

TOKEN = "0123456789abcdef0123456789abcdee"
HARNESS = """
import sys, time
from pathlib import Path
from diloco_chaos.harness.places.local.pressure.pressures import Pressures
from diloco_chaos.harness.places.pressure import Load
from diloco_chaos.harness.record.undo_log import UndoLog
run = Path(sys.argv[1])
pressures = Pressures(run, {}, UndoLog(run / "undo-log", sys.argv[2]))
assert not pressures.press_on("f1", Load(*eval(sys.argv[3])), [])
print("pressing", flush=True)
time.sleep(1000)
"""


def awaited(condition):
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


@pytest.fixture
def ground(tmp_path):
    """Pressures of a run with a node that computes."""
    (tmp_path / "logs").mkdir()
    log = UndoLog(tmp_path / "undo-log", TOKEN)
    process = subprocess.Popen([sys.executable, "-c", "print(1, flush=True)\nwhile True: pass"], stdout=subprocess.PIPE)
    process.stdout.readline()
    pressures = Pressures(tmp_path, {"w": SimpleNamespace(process=process)}, log)
    pressures.begin([NodeSpec("w", (), pressed=True)])
    pressures.poll()
    yield SimpleNamespace(pressures=pressures, path=tmp_path, log=log)
    pressures.end()
    process.kill()
    process.communicate()


@pytest.mark.parametrize("load", [Load("cpu", 2, 5), Load("memory", 1, size=32 << 20),
                                  Load("io", 2, size=4 << 20)], ids=lambda load: load.resource)
def test_workers_begin_and_none_is_left_once_it_is_lifted(ground, load):
    files = sorted(ground.path.iterdir())
    assert ground.pressures.press_on("f1", load, ["w"]) == ""
    awaited(lambda: len(with_token(TOKEN)) == 1 + load.workers)
    workers = with_token(TOKEN)
    assert len(ground.pressures.residue()) == 1
    ground.pressures.lift("f1")
    ground.pressures.lift("f1")
    assert not any(state(worker.pid) == "R" and identity(worker.pid) == worker for worker in workers)
    assert ground.pressures.residue() == []
    assert ground.pressures.felt("f1", "w").why == ""
    assert sorted(ground.path.iterdir()) == files


def test_busy_workers_make_a_node_wait(ground):
    ground.pressures.press_on("f1", Load("cpu", 4), ["w"])
    began = time.monotonic()
    awaited(lambda: time.monotonic() > began + 2)
    ground.pressures.lift("f1")
    felt = ground.pressures.felt("f1", "w")
    assert felt.during.waited > 0
    assert felt.during.seconds > 1


def test_workers_run_on_the_processors_of_the_node_and_with_its_priority(ground):
    pid = ground.pressures._nodes["w"].process.pid
    one = min(os.sched_getaffinity(pid))
    os.sched_setaffinity(pid, {one})
    ground.pressures.press_on("f1", Load("cpu", nice=7), ["w"])
    awaited(lambda: len(with_token(TOKEN)) == 2)
    for worker in with_token(TOKEN):
        assert os.sched_getaffinity(worker.pid) == {one}
        assert os.getpriority(os.PRIO_PROCESS, worker.pid) == 7 + os.getpriority(os.PRIO_PROCESS, 0)


@pytest.mark.parametrize(("load", "words"), [
    (Load("cpu", 10_000), "are more than 4 for each: write `workers: "),
    (Load("memory", 1, size=1 << 60), "would leave less than 10% of it free: write `size: "),
    (Load("memory", 1, share=1.0), "would leave less than 10% of it free: write `size: "),
    (Load("io", 1, size=1 << 60), "would leave less than 10% of the run's disk free: write `size: ")])
def test_what_is_beyond_the_limits_of_the_machine_is_refused_before_anything_starts(ground, load, words):
    assert words in ground.pressures.press_on("f1", load, ["w"])
    assert with_token(TOKEN) == []
    assert ground.pressures.residue() == []


def test_the_limit_of_a_control_group_counts(monkeypatch):
    monkeypatch.setattr(limits, "_groups", lambda: iter([(100_000_000, 30_000_000)]))
    assert limits.memory_room() == 60_000_000
    assert limits.why_not_memory(60_000_001) == (
        "60 MB of memory would leave less than 10% of it free: write `size: 60 MB` or less")
    assert limits.why_not_memory(60_000_000) == ""


def test_what_could_not_be_done_is_told(ground):
    ground.pressures.press_on("f1", Load("cpu", 1), ["w"])
    awaited(lambda: len(with_token(TOKEN)) == 2)
    for worker in with_token(TOKEN):
        os.kill(worker.pid, signal.SIGKILL)
    awaited(lambda: ground.pressures._pressing["f1"].popen.poll() is not None)
    ground.pressures.lift("f1")
    assert ground.pressures.felt("f1", "w").why == "what makes it ended: it said nothing"


@pytest.mark.parametrize("load", [("cpu", 2), ("memory", 1, 0, 32 << 20), ("io", 2, 0, 4 << 20)],
                         ids=lambda load: load[0])
def test_nothing_presses_any_more_once_the_harness_was_killed(tmp_path, load):
    token = f"{TOKEN[:-3]}{load[0][0].encode().hex()}f"[:32]
    (tmp_path / "logs").mkdir()
    harness = subprocess.Popen([sys.executable, "-c", HARNESS, str(tmp_path), token, repr(load)],
                               stdout=subprocess.PIPE)
    assert harness.stdout.readline() == b"pressing\n"
    awaited(lambda: len(with_token(token)) == 1 + load[1])
    assert len(family(harness.pid)) == 2 + load[1]
    harness.kill()
    harness.communicate()
    awaited(lambda: not with_token(token))
    heal(tmp_path / "undo-log")
    assert not (tmp_path / "undo-log").exists()


def test_its_end_is_owed_before_it_begins(ground):
    """The harness' death ends it; so does its reaper, where that was not seen."""
    ground.pressures.press_on("f1", Load("cpu", 1), ["w"])
    awaited(lambda: len(with_token(TOKEN)) == 2)
    helper = ground.pressures._pressing["f1"].popen
    owed = json.loads((ground.path / "undo-log").read_text().splitlines()[-1])
    assert (owed["entry"], owed["process"][0]) == ("end_pressure", helper.pid)
    assert str(heal(ground.path / "undo-log")[0]) == f"pressure by process {helper.pid} ended"
    awaited(lambda: not with_token(TOKEN))
