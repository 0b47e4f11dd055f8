"""Custody: every start heals what dead harnesses left, opens an undo log, and has a reaper watch over it."""

import fcntl
import json
import os
import secrets
import signal
import threading
import time

import pytest

from diloco_chaos.chaos.runner import cleanup
from diloco_chaos.chaos.runner.cleanup import cleanup_guard
from diloco_chaos.harness.base.processes import identity, state
from diloco_chaos.harness.record.undo_log import UndoLog, read, undo_logs_folder
from diloco_chaos.harness.record.undos import Continue, Remove
from typed import typed


def clean(*folder):
    """What it does, as people read it."""
    return list(map(str, cleanup.clean(*folder)))


DEAD = secrets.token_hex(16)


@pytest.fixture(autouse=True)
def _no_engine(tmp_path, monkeypatch):
    """Tests beside these kill harnesses that have containers: whose they are is none of these tests' business."""
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/docker.sock")


def until(condition, seconds=5.0):
    end = time.monotonic() + seconds
    while not (value := condition()) and time.monotonic() < end:
        time.sleep(0.005)
    return value


def reapers(path):
    """Pids of the reapers of this undo log, those that ended and were not waited for left out."""
    found = []
    for entry in os.listdir("/proc"):
        try:
            with open(f"/proc/{entry}/cmdline", "rb") as file:
                if entry.isdigit() and str(path).encode() in file.read().split(b"\0") and identity(int(entry)):
                    found.append(int(entry))
        except OSError:
            continue
    return found


def undo_logs():
    return list(undo_logs_folder().glob("*"))


def test_a_undo_log_is_made_in_the_state_folder_under_a_token_of_its_own():
    with cleanup_guard() as first, cleanup_guard() as second:
        assert {first.path, second.path} == set(undo_logs())
        assert first.token != second.token
        assert read(first.path).opened.pid == os.getpid()


def test_a_reaper_watches_over_it_and_nothing_of_either_is_left_at_the_end():
    with cleanup_guard() as undo_log:
        assert len(until(lambda: reapers(undo_log.path))) == 1
    assert reapers(undo_log.path) == []
    assert undo_logs() == []


def test_nothing_is_left_of_either_where_the_run_fails():
    with pytest.raises(RuntimeError), cleanup_guard() as undo_log:
        raise RuntimeError
    assert reapers(undo_log.path) == []
    assert undo_logs() == []


def test_a_reaper_is_out_of_ctrl_cs_reach_and_does_not_carry_the_token():
    with cleanup_guard() as undo_log:
        pid = until(lambda: reapers(undo_log.path))[0]
        assert os.getsid(pid) == pid != os.getsid(0)
        with open(f"/proc/{pid}/environ", "rb") as file:
            assert undo_log.token.encode() not in file.read()


def test_a_reaper_that_is_killed_is_followed_by_another():
    with cleanup_guard() as undo_log:
        first = until(lambda: reapers(undo_log.path))
        os.kill(first[0], signal.SIGKILL)
        second = until(lambda: [pid for pid in reapers(undo_log.path) if pid != first[0]])
        assert len(second) == 1
    assert reapers(undo_log.path) == []
    assert undo_logs() == []


def test_a_reaper_that_can_not_live_is_given_up_with_a_word(capfd):
    with cleanup_guard() as undo_log:
        killed = set()
        while len(killed) < 6:
            (reaper,) = until(lambda: set(reapers(undo_log.path)) - killed)
            os.kill(reaper, signal.SIGKILL)
            killed.add(reaper)
        assert until(lambda: "can't be kept alive" in capfd.readouterr().err)
        assert reapers(undo_log.path) == []
    assert undo_logs() == []


def test_what_is_still_owed_when_the_harness_ends_in_peace_is_undone(start, tmp_path):
    """A second Ctrl-C at the wrong moment, say: the fault was not undone, and the harness ends none the less."""
    with cleanup_guard() as undo_log:
        folder = tmp_path / "references" / f"fault-free.{undo_log.token}.work"
        folder.mkdir(parents=True)
        ours = start(token=undo_log.token)
        undo_log.record(Remove, path=folder)
        undo_log.record(Continue, process=identity(ours.pid))
        ours.send_signal(signal.SIGSTOP)
        assert until(lambda: reapers(undo_log.path))
    assert until(lambda: not folder.exists())
    assert until(lambda: ours.poll() is not None)
    assert until(lambda: undo_logs() == [])
    assert until(lambda: reapers(undo_log.path) == [])


def test_ctrl_c_while_the_reaper_is_ending_leaves_no_undo_log(monkeypatch):
    """The harness waits for its watch for some milliseconds: there the next Ctrl-C may hit it."""
    join = threading.Thread.join

    def interrupted(thread, timeout=None):
        if thread.name == "reaper-watch":
            raise KeyboardInterrupt
        join(thread, timeout)
    monkeypatch.setattr(threading.Thread, "join", interrupted)
    with pytest.raises(KeyboardInterrupt), cleanup_guard() as undo_log:
        pass
    assert undo_logs() == []
    assert until(lambda: reapers(undo_log.path) == [])


# -- clean ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def dead(start, tmp_path):
    """The undo log of a harness that is dead and whose reaper is dead, a stopped process, and a folder."""
    folder = tmp_path / "cache" / f"synchronous.{DEAD}.work"
    folder.mkdir(parents=True)
    ours = start(token=DEAD)
    undo_log = UndoLog(undo_logs_folder() / "dead.jsonl", DEAD)
    undo_log.record(Remove, path=folder)
    undo_log.record(Continue, process=identity(ours.pid))
    ours.send_signal(signal.SIGSTOP)
    until(lambda: state(ours.pid) == "T")
    undo_log.close()
    return ours, folder


def test_cleaning_does_what_a_dead_reaper_could_not(dead):
    ours, folder = dead
    assert set(clean()) == {f"process {ours.pid} let run again", f"{folder} removed", f"1 processes ended: {ours.pid}"}
    assert ours.wait(5) == -signal.SIGKILL
    assert not folder.exists()
    assert undo_logs() == []


def test_cleaning_twice_is_harmless(dead):
    assert clean()
    assert clean() == []


def test_cleaning_where_there_never_was_a_run_is_harmless(tmp_path):
    assert clean() == []
    assert clean(tmp_path / "nowhere") == []
    assert not (tmp_path / "state").exists()


def test_a_undo_log_whose_harness_is_alive_is_left_alone(start, dead):
    with cleanup_guard() as undo_log:
        theirs = start(token=undo_log.token)
        undo_log.record(Continue, process=identity(theirs.pid))
        theirs.send_signal(signal.SIGSTOP)
        until(lambda: state(theirs.pid) == "T")
        assert len(clean()) == 3
        assert undo_logs() == [undo_log.path]
        assert state(theirs.pid) == "T"
        assert len(read(undo_log.path).undos) == 1
        undo_log.complete(1)


def test_what_is_not_a_undo_log_is_told_and_stays_and_hinders_nothing(dead):
    ours, _ = dead
    notes = undo_logs_folder() / "a-note.jsonl"
    notes.write_text("dear diary\n")
    (undo_logs_folder() / "readme.txt").write_text("not even of that name")
    did = clean()
    assert did[0].startswith(f"NOT UNDONE: {notes}:1: not a line of an undo log")
    assert ours.wait(5) == -signal.SIGKILL
    assert {path.name for path in undo_logs()} == {"a-note.jsonl", "readme.txt"}


def test_a_undo_log_that_is_just_being_made_is_not_taken_for_a_dead_ones(monkeypatch):
    """Another start cleans up between the moment in which the file is there and that in which it is locked."""
    real, cleaned = fcntl.flock, []

    def flock(file, operation):
        if not cleaned:
            cleaned.append(True)
            clean()
        return real(file, operation)
    monkeypatch.setattr(fcntl, "flock", flock)
    with cleanup_guard() as undo_log:
        assert cleaned
        assert undo_log.path.exists()
        undo_log.complete(undo_log.record(Continue, process=identity(os.getpid())))
        assert len(read(undo_log.path).undos) == 0


def test_the_command_tells_what_it_did_and_exits_with_0(dead):
    ours, folder = dead
    done = typed("clean", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["clean"]
    assert f"{folder} removed" in told["did"]
    assert ours.wait(5) == -signal.SIGKILL


def test_the_command_tells_what_it_could_not_do_and_exits_with_2():
    undo_logs_folder().mkdir(parents=True)
    (undo_logs_folder() / "note.jsonl").write_text("dear diary\n")
    done = typed("clean")
    assert done.returncode == 2
    assert "NOT UNDONE" in done.stdout
