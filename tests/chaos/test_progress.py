"""What a trainer calls: it writes where it is asked to, and is never in the way."""

import json
import os
import signal
import subprocess
import sys

import numpy as np
import pytest

from diloco_chaos import progress
from diloco_chaos.harness.trainers.core.programs import FAILPOINTS, PROGRESS_FILE, STEADY


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.setenv(PROGRESS_FILE, str(tmp_path / "w.0.jsonl"))
    return tmp_path / "w.0.jsonl"


def test_a_round_is_a_line(file):
    progress.round(7, loss=0.5, samples=64, members=2, rank=1)
    progress.round(8)
    first, second = map(json.loads, file.read_text().splitlines())
    assert {key: first[key] for key in ("round", "loss", "samples", "members", "rank")} == {
        "round": 7, "loss": 0.5, "samples": 64, "members": 2, "rank": 1}
    assert set(second) == {"round", "time"}


def test_outside_a_run_it_does_nothing(monkeypatch, tmp_path):
    monkeypatch.delenv(PROGRESS_FILE, raising=False)
    monkeypatch.chdir(tmp_path)
    progress.round(7)
    assert list(tmp_path.iterdir()) == []


def test_numbers_of_others_are_made_numbers(file):
    progress.round(np.int64(7), loss=np.float32(0.5))
    assert json.loads(file.read_text())["loss"] == 0.5


@pytest.mark.parametrize(("data", "written"), [
    (7, 7), (range(64, 128), "64-127"), ([3, np.int64(4)], [3, 4]), (np.array([5, 6]), [5, 6]),
    (range(0, 8, 2), [0, 2, 4, 6])])
def test_data_can_be_named(file, data, written):
    progress.round(1, batch=data, samples=data)
    line = json.loads(file.read_text())
    assert (line["batch"], line["samples"]) == (written, written)


@pytest.fixture
def waited_for(file, monkeypatch):
    monkeypatch.setenv(FAILPOINTS, "save.before_rename:3,other:1")
    (file.parent / STEADY).touch()
    return file


def said(file):
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def test_passes_of_a_failpoint_are_told_until_the_one_at_which_it_stands(waited_for):
    holding = subprocess.Popen([sys.executable, "-c", "from diloco_chaos import progress\n"
                                "for _ in range(5): progress.hold('save.before_rename')"])
    _, status = os.waitpid(holding.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    assert [(one["failpoint"], one["count"], one["stops"]) for one in said(waited_for)] == [
        ("save.before_rename", 1, False), ("save.before_rename", 2, False), ("save.before_rename", 3, True)]
    holding.send_signal(signal.SIGCONT)
    assert holding.wait() == 0
    assert len(said(waited_for)) == 3, "nobody waits for more"


def test_the_next_process_of_a_node_goes_on_counting(waited_for, monkeypatch):
    progress.hold("save.before_rename")
    monkeypatch.setenv(PROGRESS_FILE, str(waited_for.parent / "w.1.jsonl"))
    progress.hold("save.before_rename")
    assert [one["count"] for one in said(waited_for.parent / "w.1.jsonl")] == [2]


def test_nothing_is_counted_before_the_steady_state_nor_where_nobody_waits(file, waited_for, monkeypatch):
    progress.hold("elsewhere")
    (file.parent / STEADY).unlink()
    progress.hold("other")
    (file.parent / STEADY).touch()
    monkeypatch.delenv(FAILPOINTS)
    progress.hold("other")
    assert said(file) == []


def test_a_point_that_can_not_be_told_holds_nobody(monkeypatch):
    monkeypatch.setenv(FAILPOINTS, "other:1,nonsense,:,x:y")
    monkeypatch.setenv(PROGRESS_FILE, "/nowhere/at/all.0.jsonl")
    for point in ("other", "nonsense", "", "x"):
        progress.hold(point)


@pytest.mark.parametrize("where", ["/nowhere/at/all", "/dev/full", "/"])
def test_it_never_raises(monkeypatch, where):
    monkeypatch.setenv(PROGRESS_FILE, where)
    progress.round(7)
    progress.round(object(), loss="low")


def test_nobody_is_waited_for(tmp_path, monkeypatch):
    os.mkfifo(tmp_path / "pipe")
    monkeypatch.setenv(PROGRESS_FILE, str(tmp_path / "pipe"))
    progress.round(7)


def test_it_needs_nothing_but_python():
    code = "import sys; from diloco_chaos import progress; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code],
                            capture_output=True, text=True, check=True).stdout.split()
    assert not {"pydantic", "numpy", "torch", "rich", "typer", "orjson", "msgspec"} & set(loaded)
