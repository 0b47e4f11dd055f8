"""The script of a node's job."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness.cluster.slurm.job import NO_FOLDER, launched, script, submitted_with
from harness.cluster.slurm.settings import SlurmSettings


@pytest.fixture
def run(tmp_path):
    """Run it, for as long as its agent lets it."""
    def done(python):
        text = script(SlurmSettings(folder=str(tmp_path / "a folder"), python=python), "diloco-chaos.abc.hub")
        return subprocess.run(["sh"], input=text, text=True, capture_output=True,
                              env=os.environ | {"SLURM_JOB_ID": "7", "DILOCO_CHAOS_TOKEN": "t"})
    (tmp_path / "a folder").mkdir()
    return done


def test_it_runs_its_agent_in_a_folder_of_its_own_and_removes_it(run, tmp_path):
    said = tmp_path / "said"
    python = tmp_path / "a python"
    python.write_text(f"#!/bin/sh\necho \"$@\" >{said}; ls -ld \"$3\" >>{said}; head -n 1 \"$1\" >>{said}; exit 3")
    python.chmod(0o755)
    assert run(str(python)).returncode == 3
    argv, folder, source = said.read_text().splitlines()
    inside = tmp_path / "a folder/diloco-chaos.abc.hub-7-0"
    assert argv == f"{inside}/agent.py --run {inside} --port-file {inside}/agent.port --patience 90 --shared"
    assert folder.startswith("drwx------")
    assert source.startswith('"""Starts one node')
    assert list((tmp_path / "a folder").iterdir()) == []


def test_a_folder_that_is_there_already_is_somebody_else_s(run, tmp_path):
    theirs = tmp_path / "a folder/diloco-chaos.abc.hub-7-0"
    theirs.mkdir()
    assert run(sys.executable).returncode == NO_FOLDER
    assert list(theirs.iterdir()) == []


def test_an_interpreter_that_is_not_there_ends_it_as_shells_say(run):
    assert run("/nowhere/python3").returncode == 127


def test_what_is_asked_of_slurm_is_what_the_settings_say():
    settings = SlurmSettings(partition="debug", account="lab", options=("--qos=low",), cpus=2, memory="2G")
    assert submitted_with(settings, ["n1", "n2"]) == [
        "--partition=debug", "--account=lab", "--exclude=n1,n2", "--cpus-per-task=2", "--mem=2G", "--qos=low"]
    assert submitted_with(SlurmSettings(), []) == ["--cpus-per-task=1", "--mem=1G"]


def test_what_is_launched_tells_its_pid_and_its_step(tmp_path):
    (tmp_path / "steps").mkdir()
    argv, file = launched(str(tmp_path), "hub.0", 2, ["sh", "-c", "echo started $$"])
    shell = argv[argv.index("sh"):]
    done = subprocess.run(shell, env=os.environ | {"SLURM_STEP_ID": "5"}, text=True, capture_output=True)
    pid, step = Path(file).read_text().split()
    assert (done.stdout, step) == (f"started {pid}\n", "5")
    assert "--overlap" in argv
    assert "--cpus-per-task=2" in argv
