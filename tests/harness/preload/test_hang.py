"""A main thread that stands, beside others that go on or stand with it."""

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager

import pytest

from diloco_chaos.harness.preload.library import built
from diloco_chaos.harness.preload.page import STAND, Page

BESIDE = """
import os, socket, sys, threading, time
here, there = socket.socketpair()
def say(who):
    os.write(1, f"{who} {time.monotonic()}\\n".encode())  # a line that no other thread's breaks
def beat():
    while True:
        say("beat")
        time.sleep(.005)
threading.Thread(target=beat, daemon=True).start()
def feed():
    while True:
        there.send(b"x")
        time.sleep(.005)
"""
COMPUTES = BESIDE + """
while True:
    sum(range(20000))
    say("main")
"""
RECEIVES = BESIDE + """
threading.Thread(target=feed, daemon=True).start()
while True:
    assert here.recv(1)
    say("main")
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return built(tmp_path_factory.mktemp("library"), "hang", "hang")


@pytest.fixture
def page(tmp_path):
    return Page(tmp_path / "page", "0123456789abcdef")


@contextmanager
def running(library, tmp_path, code):
    environment = os.environ | {"LD_PRELOAD": str(library), "DILOCO_CHAOS_PAGE": str(tmp_path / "page")}
    process = subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline()
        yield process
    finally:
        process.kill()
        process.communicate()


def stand(page, process, holding):
    """Make it stand, and return when it did."""
    page.hang(holding)
    until = time.monotonic() + 20
    while not page.stood and time.monotonic() < until:
        process.send_signal(STAND)
        time.sleep(0.001)
    assert page.stood == process.pid
    return time.monotonic()


def ticks(pid):
    """Processor time of a process, in hundredths of a second."""
    with open(f"/proc/{pid}/stat") as file:
        return int(file.read().rpartition(")")[2].split()[11])


def lines_until(process, moment):
    """Yield who wrote, and when, until a time has passed for both; a thread that stands writes nothing."""
    last = {}
    while min(last.get("beat", 0), last.get("main", 0)) < moment:
        who, when = process.stdout.readline().split()
        last[who] = float(when)
        yield who, float(when)


@pytest.mark.parametrize(("code", "holding", "others"), [
    (COMPUTES, "gil", False), (RECEIVES, "gil", False), (RECEIVES, "nothing", True)],
    ids=["with the GIL", "with the GIL, though it waits most of the time", "without it"])
def test_the_main_thread_stands_until_it_is_released(library, page, tmp_path, code, holding, others):
    with running(library, tmp_path, code) as process:
        stood = stand(page, process, holding)
        time.sleep(0.3)
        over = time.monotonic()
        page.release()
        written = [(who, when) for who, when in lines_until(process, over + 0.05) if stood < when < over]
    assert not [who for who, _ in written if who == "main"]
    assert bool([who for who, _ in written if who == "beat"]) is others


def test_without_the_gil_who_always_has_it_does_not_stand(library, page, tmp_path):
    with running(library, tmp_path, "print(1, flush=True)\nwhile True: sum(range(1000))") as process:
        printed = ticks(process.pid)
        while ticks(process.pid) < printed + 3:  # it computes again, and holds the lock
            time.sleep(0.01)
        page.hang("nothing")
        for _ in range(20):
            process.send_signal(STAND)
            time.sleep(0.002)
        assert page.stood == 0


def test_a_process_that_stands_can_be_ended_and_one_that_is_signalled_late_goes_on(library, page, tmp_path):
    with running(library, tmp_path, COMPUTES) as process:
        process.send_signal(STAND)  # nothing is armed
        stand(page, process, "gil")
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == -signal.SIGTERM
