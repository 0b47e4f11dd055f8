"""A process is ours only by pid, start time and token together; whatever lacks one of them is not touched."""

import os
import secrets
import signal
import subprocess
import sys
import time

from diloco_chaos.harness.base.processes import (
    Identity,
    carries,
    end_all,
    handle,
    identity,
    memory_of_family,
    send,
    state,
    with_token,
)

OURS, THEIRS = secrets.token_hex(16), secrets.token_hex(16)


def until(condition, seconds=5.0):
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.005)
    return condition()


def test_a_living_process_has_an_identity_that_stays(start):
    process = start()
    who = identity(process.pid)
    assert who == Identity(process.pid, who.start)
    assert identity(process.pid) == who
    assert who.start >= identity(os.getpid()).start


def test_a_process_that_ended_has_none_waited_for_or_not(start):
    process = start()
    process.send_signal(signal.SIGKILL)
    assert until(lambda: state(process.pid) == "Z")
    assert identity(process.pid) is None
    process.wait()
    assert identity(process.pid) is None
    assert state(process.pid) == ""


def test_a_stopped_process_is_alive_and_seen_to_be_stopped(start):
    process = start()
    process.send_signal(signal.SIGSTOP)
    assert until(lambda: state(process.pid) == "T")
    assert identity(process.pid) is not None


def test_a_name_with_brackets_and_blanks_hides_no_field(tmp_path):
    odd = tmp_path / "a) S 1 (b"
    odd.symlink_to("/bin/sleep")
    with subprocess.Popen([str(odd), "60"]) as process:
        try:
            assert identity(process.pid).start >= identity(os.getpid()).start
        finally:
            process.kill()


def test_only_the_whole_token_is_carried(start):
    process = start(token=OURS)
    assert carries(process.pid, OURS)
    assert not carries(process.pid, OURS[:-1])
    assert not carries(process.pid, OURS + "0")
    assert not carries(process.pid, THEIRS)
    assert not carries(start().pid, OURS)


def test_a_pid_that_nobody_has_carries_nothing(start):
    process = start(token=OURS)
    process.kill()
    process.wait()
    assert not carries(process.pid, OURS)


def test_everyone_with_the_token_is_found_and_nobody_else(start):
    ours = [start(token=OURS), start(token=OURS)]
    start(token=THEIRS)
    start()
    assert sorted(who.pid for who in with_token(OURS)) == sorted(process.pid for process in ours)


def test_a_signal_reaches_exactly_the_process_that_was_meant(start):
    process = start(token=OURS)
    assert send(identity(process.pid), OURS, signal.SIGTERM)
    assert process.wait(5) == -signal.SIGTERM


def test_a_pid_that_was_given_away_again_is_not_touched(start):
    process = start(token=OURS)
    before = Identity(process.pid, identity(process.pid).start - 1)
    assert not send(before, OURS, signal.SIGKILL)
    with handle(before, OURS) as descriptor:
        assert descriptor is None
    assert end_all([before], OURS) == []
    assert process.poll() is None


def test_a_process_without_the_token_is_not_touched(start):
    for process in (start(), start(token=THEIRS)):
        who = identity(process.pid)
        assert not send(who, OURS, signal.SIGKILL)
        assert end_all([who], OURS) == []
        assert process.poll() is None


def test_what_is_gone_can_be_signalled_without_harm(start):
    process = start(token=OURS)
    who = identity(process.pid)
    process.kill()
    process.wait()
    assert not send(who, OURS, signal.SIGCONT)
    assert end_all([who], OURS) == []


def test_all_are_ended_even_stopped_ones_before_it_returns(start):
    processes = [start(token=OURS) for _ in range(3)]
    processes[1].send_signal(signal.SIGSTOP)
    assert end_all(with_token(OURS), OURS) == []
    assert with_token(OURS) == []


def test_looking_at_processes_leaves_no_descriptor_open(start):
    process = start(token=OURS)
    before = os.listdir("/proc/self/fd")
    for who in (identity(process.pid), Identity(process.pid, 0), Identity(process.pid, identity(process.pid).start)):
        send(who, OURS, signal.SIGCONT)
    end_all(with_token(OURS), OURS)
    assert os.listdir("/proc/self/fd") == before


FORKS = """
import os, sys
held = bytearray(os.urandom(1)) * (64 << 20)
child = os.fork()
if child:
    print(child, flush=True)
sys.stdin.read()
"""


def test_what_forks_share_counts_once_among_them_where_that_is_to_be_exact():
    with subprocess.Popen([sys.executable, "-c", FORKS], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        both = [process.pid, int(process.stdout.readline())]
        exact, fast = (memory_of_family(both, exact=exact) / (64 << 20) for exact in (True, False))
        process.stdin.close()
    assert 1 <= exact < 1.5
    assert 2 <= fast < 3
    assert memory_of_family([1 << 22]) == 0
