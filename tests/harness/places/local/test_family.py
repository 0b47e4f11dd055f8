"""All processes of a command: who is ended with it, and when."""

import os
import subprocess

import psutil
import pytest

from diloco_chaos.harness.base.processes import TOKEN
from diloco_chaos.harness.places.local.family import Family
from diloco_chaos.harness.trainers.core.programs import NODE

CHILDREN = 40


@pytest.fixture
def parent():
    """A command with children that sleep, and its family."""
    environment = {**os.environ, TOKEN: "0123456789abcdef", NODE: "worker-1.0"}
    script = f"for _ in $(seq {CHILDREN}); do sleep 1000 & done; echo; wait"
    with subprocess.Popen(["sh", "-c", script], env=environment, stdout=subprocess.PIPE) as popen:
        assert popen.stdout.readline() == b"\n"
        yield popen, psutil.Process(popen.pid).children()
        popen.kill()


def test_no_child_is_left_when_its_command_was_swept(parent):
    popen, children = parent
    assert len(children) == CHILDREN
    popen.kill()
    popen.wait()
    Family(popen, "0123456789abcdef", "worker-1.0").sweep()
    assert [child for child in children if child.is_running() and child.status() != psutil.STATUS_ZOMBIE] == []


def test_what_is_left_behind_is_told_by_pid_and_command(parent):
    popen, children = parent
    family = Family(popen, "0123456789abcdef", "worker-1.0")
    popen.kill()
    popen.wait()
    assert sorted(family.left_behind()) == sorted(f"{child.pid} sleep 1000" for child in children)
    family.sweep()
    assert family.left_behind() == []


def test_what_is_kept_is_ended_with_the_run_whichever_incarnation_left_it(parent):
    popen, children = parent
    popen.kill()
    popen.wait()
    family = Family(popen, "0123456789abcdef", "worker-1.1", keeps_leftovers=True)
    family.sweep()
    assert all(child.is_running() for child in children)
    family.sweep(run_is_over=True)
    assert [child for child in children if child.is_running() and child.status() != psutil.STATUS_ZOMBIE] == []


def test_the_children_of_another_command_are_left_alone(parent):
    popen, children = parent
    Family(popen, "0123456789abcdef", "worker-2.0").sweep()
    assert all(child.is_running() for child in children)
    Family(popen, "0123456789abcdef", "worker-1.0").sweep()
