"""What a trainer calls: it writes where it is asked to, and is never in the way."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from chaos import progress
from harness.core.programs import PROGRESS_FILE


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.setenv(PROGRESS_FILE, str(tmp_path / "w.0.jsonl"))
    return tmp_path / "w.0.jsonl"


def test_a_round_is_a_line(file):
    progress.round(7, loss=0.5, samples=64, members=2)
    progress.round(8)
    first, second = map(json.loads, file.read_text().splitlines())
    assert {key: first[key] for key in ("round", "loss", "samples", "members")} == {
        "round": 7, "loss": 0.5, "samples": 64, "members": 2}
    assert set(second) == {"round", "time"}


def test_outside_a_run_it_does_nothing(monkeypatch, tmp_path):
    monkeypatch.delenv(PROGRESS_FILE, raising=False)
    monkeypatch.chdir(tmp_path)
    progress.round(7)
    assert list(tmp_path.iterdir()) == []


def test_numbers_of_others_are_made_numbers(file):
    progress.round(np.int64(7), loss=np.float32(0.5))
    assert json.loads(file.read_text())["loss"] == 0.5


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
    loaded = subprocess.run([sys.executable, "-c", "import sys, chaos.progress; print(*sys.modules)"],
                            capture_output=True, text=True, check=True).stdout.split()
    assert not {"pydantic", "numpy", "torch", "rich", "typer", "orjson", "msgpack"} & set(loaded)
