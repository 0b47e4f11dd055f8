"""What the harness sees of its machine."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
import time
from itertools import count
from pathlib import Path

import pytest

from diloco_chaos.harness.base.machine import MachineWatch
from diloco_chaos.harness.base.processes import TOKEN, family

OURS = secrets.token_hex(16)
TOTAL = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
WRITE = ("import os, sys\nwith open(sys.argv[1], 'wb') as file:\n    file.write(bytes(8_000_000))\n    os.fsync(file)")
BURN = "import time\nwhile time.process_time() < 0.4: pass"


@pytest.fixture
def watch(tmp_path):
    """One that is asked once a second by its own clock."""
    watches = []

    def make(roots=(), clock=None):
        seconds = count()
        watches.append(MachineWatch(lambda: roots, OURS, tmp_path, clock or (lambda: float(next(seconds)))))
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


def seen_of_a_child(mine, waits, script, *arguments):
    """What is seen of the time in which a child did this, and has ended or is there still."""
    mine.look()
    child = subprocess.Popen([sys.executable, "-c", script + "\nprint(flush=True)\ninput()", *arguments], text=True,
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    child.stdout.readline()
    if waits:
        child.communicate("\n")
    sample = mine.look()
    if not waits:
        child.communicate("\n")
    return sample


@pytest.mark.parametrize("waits", [True, False], ids=["it has ended", "it is there still"])
def test_what_a_child_used_is_the_runs_own(watch, waits):
    sample = seen_of_a_child(watch(), waits, BURN)
    assert sample.ours * sample.seconds >= 0.35


@pytest.fixture
def on_disk(pytestconfig):
    """A folder beside the sources: that for temporary files may be in memory."""
    with tempfile.TemporaryDirectory(dir=pytestconfig.rootpath, prefix=".tests-") as folder:
        yield Path(folder)


@pytest.mark.parametrize("waits", [True, False], ids=["it has ended", "it is there still"])
def test_what_a_child_writes_is_the_runs_own(watch, on_disk, waits):
    sample = seen_of_a_child(watch(), waits, WRITE, on_disk / "file")
    if not sample.disk_ours and os.major(on_disk.stat().st_dev) == 0:
        pytest.skip("there is no disk behind the sources")
    assert sample.disk_ours * sample.seconds >= 8
    assert sample.disk_all * sample.seconds >= 8


def test_the_memory_that_the_run_holds_is_known(watch):
    mine = watch()
    mine.look()
    before = mine.look()
    held = bytearray(os.urandom(1)) * (200 << 20)
    after = mine.look()
    assert len(held) * 0.9 <= (after.memory_ours - before.memory_ours) * TOTAL <= len(held) * 1.5
    assert 0 < after.memory_left < 1


def test_a_disk_that_takes_long_to_store_a_byte_is_seen_while_it_does_and_afterwards(watch, monkeypatch, tmp_path):
    stuck, asked = threading.Event(), threading.Event()

    def fsync(_):
        asked.set()
        assert stuck.wait(30)
    monkeypatch.setattr("diloco_chaos.harness.base.machine.os.fsync", fsync)
    mine = watch()
    mine.look()
    assert asked.wait(30)
    began = time.monotonic()
    mine.look()
    assert mine.look().sync >= time.monotonic() - began - 0.05, "nothing is stored yet"
    stuck.set()
    assert list(tmp_path.iterdir()) == [], "it has no name"


def test_a_folder_that_is_not_there_says_nothing_of_a_disk(tmp_path):
    seconds = count()
    mine = MachineWatch(lambda: (), OURS, tmp_path / "nowhere", clock=lambda: float(next(seconds)))
    mine.look()
    assert mine.look().sync == 0.0
    mine.close()


def test_where_a_root_came_or_went_nothing_is_said_of_that_second(watch):
    roots = []
    mine = watch(roots)
    mine.look()
    roots.append(1)
    assert mine.look() is None
    assert mine.look() is not None


CARELESS = ("import signal, subprocess, sys\nsignal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
            "with subprocess.Popen([sys.executable, '-c', sys.argv[1]]):\n    pass\nprint(flush=True)\ninput()")


def test_where_a_process_ended_that_nobody_has_waited_for_nothing_is_said_of_that_second(watch):
    # Its time is in no count any more: what the others used would look like somebody else's.
    child = subprocess.Popen([sys.executable, "-c", CARELESS, f"{BURN}\nprint(flush=True)\ninput()"], text=True,
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    child.stdout.readline()
    mine = watch()
    mine.look()
    child.stdin.write("\n")
    child.stdin.flush()
    child.stdout.readline()
    assert mine.look() is None
    assert mine.look() is not None
    child.communicate("\n")


ORPHAN = ("import subprocess, sys\np = subprocess.Popen([sys.executable, '-c', sys.argv[1]], stdin=0)\n"
          "print(p.pid, flush=True)")


@pytest.mark.parametrize(("token", "ours"), [(OURS, True), (secrets.token_hex(16), False)], ids=["ours", "theirs"])
def test_what_a_process_uses_is_the_runs_own_though_its_parent_has_ended(watch, token, ours):
    parent = subprocess.Popen([sys.executable, "-c", ORPHAN, f"input()\n{BURN}\nprint(flush=True)\ninput()"], text=True,
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=os.environ | {TOKEN: token})
    orphan = int(parent.stdout.readline())
    parent.wait()
    mine = watch()
    try:
        assert mine.look() is None
        parent.stdin.write("\n")
        parent.stdin.flush()
        parent.stdout.readline()
        sample = mine.look()
    finally:
        os.kill(orphan, signal.SIGKILL)
    assert (sample.ours * sample.seconds >= 0.35) is ours


def test_a_thread_that_wants_a_processor_and_gets_none_waits(watch):
    """Two that burn on one processor each wait half of the time."""
    one = min(os.sched_getaffinity(0))
    burn = f"import os\nos.sched_setaffinity(0, {{{one}}})\n{BURN}\nprint(flush=True)\ninput()"
    mine = watch()
    mine.look()
    children = [subprocess.Popen([sys.executable, "-c", burn], text=True, stdin=subprocess.PIPE,
                                 stdout=subprocess.PIPE) for _ in range(2)]
    for child in children:
        child.stdout.readline()
    sample = mine.look()
    for child in children:
        child.communicate("\n")
    assert sample.waited >= 0.2


def test_where_no_thread_can_be_asked_nothing_is_known_of_waiting(watch, monkeypatch):
    monkeypatch.setattr("diloco_chaos.harness.base.machine.run_delays", lambda _: {})
    mine = watch()
    mine.look()
    sample = mine.look()
    assert sample.waited is None
    assert "waited" not in sample.fields()


def test_a_family_is_all_that_is_below_a_process():
    middle = subprocess.Popen([sys.executable, "-c", "import subprocess\nwith subprocess.Popen(['sleep', '99']) as p:\n"
                               "    print(p.pid, flush=True)\n    input()\n    p.kill()"], text=True,
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    child = int(middle.stdout.readline())
    assert family(middle.pid) == [middle.pid, child]
    middle.communicate("\n")
