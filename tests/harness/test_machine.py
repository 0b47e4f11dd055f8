"""What the harness sees of its machine."""

from __future__ import annotations

import subprocess
import sys
import time
from itertools import count

import pytest

from harness.machine import Watch
from harness.processes import family

BURN = "import time\nwhile time.process_time() < 0.4: pass"


@pytest.fixture
def watch():
    """One that is asked once a second by its own clock."""
    watches = []

    def make(roots=(), clock=None):
        seconds = count()
        watches.append(Watch(lambda: roots, clock or (lambda: float(next(seconds)))))
        return watches[-1]
    yield make
    for each in watches:
        each.close()


def test_the_first_look_has_nothing_to_compare_with(watch):
    assert watch().look() is None


def test_it_looks_no_more_often_than_once_a_second(watch):
    times = iter([0.0, 0.4, 0.5, 1.2, 1.3])
    mine = watch(clock=lambda: next(times))
    assert mine.look() is None
    assert mine.look() is None


def test_all_processors_are_somebodys(watch):
    mine = watch(clock=time.monotonic)
    mine.look()
    while (sample := mine.look()) is None:
        time.sleep(0.05)
    assert sample.idle + sample.ours + sample.others + sample.stolen == pytest.approx(sample.cores, rel=0.2)


@pytest.mark.parametrize("waits", [True, False], ids=["it has ended", "it is there still"])
def test_what_a_child_used_is_the_runs_own(watch, waits):
    mine = watch()
    mine.look()
    child = subprocess.Popen([sys.executable, "-c", BURN + "\nprint(flush=True)\ninput()"], text=True,
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    child.stdout.readline()
    if waits:
        child.communicate("\n")
    sample = mine.look()
    if not waits:
        child.communicate("\n")
    assert sample.ours * sample.seconds >= 0.35


def test_where_a_root_came_or_went_nothing_is_said_of_that_second(watch):
    roots = []
    mine = watch(roots)
    mine.look()
    roots.append(1)
    assert mine.look() is None
    assert mine.look() is not None


def test_a_family_is_all_that_is_below_a_process():
    middle = subprocess.Popen([sys.executable, "-c", "import subprocess\nwith subprocess.Popen(['sleep', '99']) as p:\n"
                               "    print(p.pid, flush=True)\n    input()\n    p.kill()"], text=True,
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    child = int(middle.stdout.readline())
    assert family(middle.pid) == [middle.pid, child]
    middle.communicate("\n")
