"""All processes of a command: who is ended with it, and when."""

import os
import signal
import subprocess
import sys
from contextlib import ExitStack

import psutil
import pytest

from diloco_chaos.harness.base.processes import TOKEN, own_name
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


FORKS = """
import ctypes, os, sys, time
def called(name):
    ctypes.CDLL(None).prctl(15, name.encode(), 0, 0, 0)
    time.sleep(1000)
for shape in sys.argv[1:2] and sys.argv[1].split("+")[1:]:
    time.sleep(.03)  # two clock ticks
    if os.fork() == 0:
        if shape == "daemon" and (os.setsid() or True) and os.fork():
            os._exit(0)
        if shape == "nested" and os.fork() == 0:
            called("inner")
        called(shape)
os.write(1, b"there")
called("node")
"""


@pytest.fixture
def forked():
    """A command whose children look like itself, which call themselves by these names; who is signalled by a name."""
    with ExitStack() as stack:
        def forked(*shapes):
            environment = {**os.environ, TOKEN: "0123456789abcdef", NODE: "worker-1.0", "RANK": "7"}
            popen = stack.enter_context(subprocess.Popen([sys.executable, "-c", FORKS, "+".join(("", *shapes))],
                                                         env=environment, stdout=subprocess.PIPE))
            family = Family(popen, "0123456789abcdef", "worker-1.0")
            stack.callback(family.sweep)
            assert popen.stdout.read(5) == b"there"
            return popen, family
        yield forked


def names(pids):
    return [own_name(pid) for pid in pids]


def hit(family, expression, which):
    """What those call themselves who are signalled, with a signal that does nothing."""
    return names(family.signal_process(expression, which, signal.SIGWINCH))


def until_named(family, *expected):
    while not set(expected) <= set(names(carrier.pid for carrier in family._carriers())):
        os.sched_yield()


@pytest.mark.parametrize("expression", [r"RANK=(\d+)", r"-(c)"])
def test_the_node_itself_is_none_of_its_processes_though_they_look_like_it(forked, expression):
    which = "7" if "RANK" in expression else "c"
    popen, family = forked()
    assert family.signal_process(expression, which, signal.SIGKILL) == []
    assert popen.poll() is None


def test_forks_that_look_alike_are_numbered_by_when_they_began(forked):
    _, family = forked("first", "second", "third")
    until_named(family, "first", "second", "third")
    assert [hit(family, r"RANK=(\d+)", which) for which in ("7", "7.1", "7.2", "7.3", "7.4", "8", "8.1")] == [
        ["first"], ["first"], ["second"], ["third"], [], [], []]
    assert [hit(family, r"RANK=\d+", which) for which in ("1", "2", "3", "4", "x")] == [
        ["first"], ["second"], ["third"], [], []]


def test_what_a_process_calls_itself_tells_it_apart(forked):
    _, family = forked("loader", "pt_data_worker", "pt_data_worker")
    until_named(family, "loader", "pt_data_worker")
    assert hit(family, "pt_data_(worker)", "worker") == hit(family, "pt_data_worker", "1") == ["pt_data_worker"]
    assert hit(family, "(loader)", "loader") == ["loader"]


@pytest.mark.parametrize(("shapes", "one"), [(("nested",), "nested"), (("daemon", "plain"), "plain")])
def test_of_a_process_and_what_it_forked_only_one_is_hit(forked, shapes, one):
    _, family = forked(*shapes)
    until_named(family, *shapes)
    assert hit(family, r"RANK=(\d+)", "7") == [one]


def test_a_pause_is_taken_back_from_all_of_that_name(forked):
    _, family = forked("a", "b")
    until_named(family, "a", "b")
    assert len(family.signal_process(r"RANK=(\d+)", "7", signal.SIGCONT)) == 2
