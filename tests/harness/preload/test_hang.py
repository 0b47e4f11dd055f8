"""A main thread that stands, beside others that go on or stand with it."""

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager

import pytest

from diloco_chaos.harness.preload.library import built
from diloco_chaos.harness.preload.page import STAND, Stood

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
PAIR = BESIDE + """
import asyncio, select
listener = socket.create_server(("127.0.0.1", 0))
here, there = socket.create_connection(listener.getsockname()), listener.accept()[0]
threading.Thread(target=feed, daemon=True).start()
"""
CALLS = {
    "recv": PAIR + "while here.recv(1): say('main')",
    "read": PAIR + "while os.read(here.fileno(), 1): say('main')",
    "send": PAIR + "while here.send(b'x'): time.sleep(.005); say('main')",
    "write": PAIR + "while os.write(here.fileno(), b'x'): time.sleep(.005); say('main')",
    "connect": BESIDE + """
import contextlib
while True:
    with contextlib.suppress(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", 1))
    time.sleep(.005)
    say("main")
""",
    "poll": PAIR + """
waits = select.poll()
waits.register(here, select.POLLIN)
while waits.poll(): say("main"); time.sleep(.005)
""",
    "select": PAIR + "while select.select([here], [], []): say('main'); time.sleep(.005)",
    "epoll_wait": PAIR + """
async def run():
    reader, _ = await asyncio.open_connection(sock=here)
    while await reader.read(1):
        say("main")
asyncio.run(run())
"""}
"""A network call -> a program whose main thread makes no other one."""
ELSEWHERE = BESIDE + """
import select
threading.Thread(target=feed, daemon=True).start()
waits = select.poll()
waits.register(here, select.POLLIN)
while waits.poll():
    here.recv(1)
    open("/dev/null").read(1)
    time.sleep(.001)
    say("main")
"""
BLOCKED = BESIDE + """
socket.create_server(("127.0.0.1", 0)).accept()
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return built(tmp_path_factory.mktemp("library"), "hang", "hang")


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
    assert page.stood.pid == process.pid
    return time.monotonic()


def ticks(pid):
    """Processor time of a process, in hundredths of a second."""
    with open(f"/proc/{pid}/stat") as file:
        return int(file.read().rpartition(")")[2].split()[11])


def wakes(pid):
    """How often a process' main thread has given its processor back by itself."""
    with open(f"/proc/{pid}/task/{pid}/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("voluntary_ctxt_switches"))


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


def test_who_stands_seldom_wakes_and_so_seldom_waits_for_a_processor(library, page, tmp_path):
    """What its thread waited for a processor would excuse the stall."""
    with running(library, tmp_path, COMPUTES) as process:
        stood = stand(page, process, "gil")
        before = wakes(process.pid)
        time.sleep(0.5)
        assert wakes(process.pid) - before < 10 + (time.monotonic() - stood) / 0.016


@pytest.mark.parametrize("call", CALLS)
def test_in_the_network_it_stands_in_its_next_call_and_its_other_threads_go_on(library, page, tmp_path, call):
    with running(library, tmp_path, CALLS[call]) as process:
        list(lines_until(process, time.monotonic()))  # it is connected
        stood = stand(page, process, "network")
        assert page.stood == Stood(process.pid, call, with_gil=False)
        time.sleep(0.3)
        over = time.monotonic()
        page.release()
        written = [(who, when) for who, when in lines_until(process, over + 0.05) if stood < when < over]
    assert {who for who, _ in written} == {"beat"}


def test_a_call_that_waits_for_a_peer_when_it_begins_is_one(library, page, tmp_path):
    with running(library, tmp_path, BLOCKED) as process:
        stand(page, process, "network")
        assert page.stood.call.startswith("accept")


def test_files_and_sockets_of_this_machine_alone_are_no_network(library, page, tmp_path):
    with running(library, tmp_path, ELSEWHERE) as process:
        page.hang("network")
        for _ in range(50):
            process.send_signal(STAND)
            time.sleep(0.005)
        assert page.stood is None


def test_a_process_of_the_same_node_that_got_no_signal_goes_on(library, page, tmp_path):
    with running(library, tmp_path, CALLS["recv"]) as process, running(library, tmp_path, CALLS["recv"]) as other:
        stood = stand(page, process, "network")
        assert list(lines_until(other, stood + 0.1))
        page.release()


def test_without_the_gil_who_always_has_it_does_not_stand(library, page, tmp_path):
    with running(library, tmp_path, "print(1, flush=True)\nwhile True: sum(range(1000))") as process:
        printed = ticks(process.pid)
        while ticks(process.pid) < printed + 3:  # it computes again, and holds the lock
            time.sleep(0.01)
        page.hang("nothing")
        for _ in range(20):
            process.send_signal(STAND)
            time.sleep(0.002)
        assert page.stood is None


def test_a_process_that_stands_can_be_ended_and_one_that_is_signalled_late_goes_on(library, page, tmp_path):
    with running(library, tmp_path, COMPUTES) as process:
        process.send_signal(STAND)  # nothing is armed
        stand(page, process, "gil")
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == -signal.SIGTERM
