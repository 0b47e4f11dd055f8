"""The script of a node's job."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from diloco_chaos.harness.places.slurm.job import NO_FOLDER, launched, script, submitted_with
from diloco_chaos.harness.places.slurm.settings import SlurmSettings


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


@pytest.fixture
def srun(tmp_path, monkeypatch):
    """One that is made up; what it is asked for, without its options."""
    def make(body):
        (tmp_path / "srun").write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / "srun").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    (tmp_path / "steps").mkdir()
    return make


FIND = 'while [ "$1" != sh ]; do shift; done; SLURM_STEP_ID=5 exec "$@"'


def test_what_is_launched_tells_its_pid_and_its_step(tmp_path, srun):
    srun(f'echo "$@" >{tmp_path}/asked; {FIND}')
    argv, file = launched(str(tmp_path), "hub.0", 2, ["sh", "-c", "echo started $$"])
    done = subprocess.run(argv, text=True, capture_output=True)
    pid, step = Path(file).read_text().split()
    assert (done.stdout, step) == (f"started {pid}\n", "5")
    asked = (tmp_path / "asked").read_text().split()
    assert {"--overlap", "--cpus-per-task=2", "--job-name=hub.0"} <= set(asked)


def test_a_step_that_could_not_begin_is_asked_for_again(tmp_path, srun):
    srun(f'if [ ! -e {tmp_path}/once ]; then touch {tmp_path}/once; exit 1; fi; {FIND}')
    argv, _ = launched(str(tmp_path), "hub.0", 1, ["sh", "-c", "exit 7"])
    assert subprocess.run(argv).returncode == 7


def test_one_that_began_is_not_begun_again(tmp_path, srun):
    srun(FIND)
    argv, _ = launched(str(tmp_path), "hub.0", 1, ["sh", "-c", f"echo x >>{tmp_path}/runs; exit 9"])
    assert subprocess.run(argv).returncode == 9
    assert (tmp_path / "runs").read_text() == "x\n"
