"""The undo log: an undo is on the disk before the deed, and whatever a crash leaves can be read."""

import fcntl
import json
import os
import resource
import signal
import subprocess
import sys

import pytest

from diloco_chaos.harness.base.processes import Identity
from diloco_chaos.harness.places.links.undos import Enable, Toxin
from diloco_chaos.harness.record.undo_log import UndoLog, UndoLogError, in_charge, read, undo_logs_folder
from diloco_chaos.harness.record.undos import Continue, Lift, Remove

TOKEN = "c0ffee" * 4
WHO = Identity(4711, 815)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "state" / "undo_log.jsonl"


@pytest.fixture
def undo_log(path):
    made = UndoLog(path, TOKEN)
    yield made
    made.close()


def test_a_new_undo_log_says_whose_it_is_and_that_nothing_is_owed(undo_log, path):
    owed = read(path)
    assert (owed.opened.token, owed.opened.pid) == (TOKEN, os.getpid())
    assert owed.undos == []


def test_only_its_owner_may_read_it(undo_log, path):
    assert path.stat().st_mode & 0o077 == 0
    assert path.parent.stat().st_mode & 0o077 == 0


def test_what_is_owed_is_on_the_disk_when_owe_returns(undo_log, path, monkeypatch):
    synced = []

    def fsync(file):
        real(file)
        synced.append(path.read_bytes())
    real = os.fsync
    monkeypatch.setattr(os, "fsync", fsync)
    undo_log.record(Continue, process=WHO)
    assert synced
    assert b'"continue"' in synced[-1]
    assert synced[-1].endswith(b"\n")


def test_every_kind_of_undo_comes_back_as_it_was_written_newest_first(undo_log, path, tmp_path):
    undo_log.cause = "f7"
    undo_log.record(Continue, process=WHO)
    undo_log.record(Lift, process=WHO, soft=resource.RLIM_INFINITY, hard=1 << 40)
    undo_log.record(Toxin, api="127.0.0.1:8474", server=WHO, link="learner-1", name="f7-latency-upstream")
    undo_log.record(Enable, api="127.0.0.1:8474", link="learner-2")
    undo_log.record(Remove, path=tmp_path / "a folder\nwith a line break")
    undos = read(path).undos
    assert [type(undo) for undo in undos] == [Remove, Enable, Toxin, Lift, Continue]
    assert [undo.number for undo in undos] == [5, 4, 3, 2, 1]
    assert {undo.cause for undo in undos} == {"f7"}
    assert undos[0].path == tmp_path / "a folder\nwith a line break"
    assert (undos[1].server, undos[2].server) == (None, WHO)
    assert (undos[3].soft, undos[3].hard) == (resource.RLIM_INFINITY, 1 << 40)
    assert undos[4].process == WHO


def test_what_was_done_is_owed_no_more(undo_log, path):
    first = undo_log.record(Continue, process=WHO)
    second = undo_log.record(Enable, api="127.0.0.1:8474", link="learner-1")
    undo_log.complete(first)
    undo_log.complete(first)
    assert [undo.number for undo in read(path).undos] == [second]


def test_a_undo_log_on_which_nothing_is_owed_goes_when_it_is_closed(path):
    undo_log = UndoLog(path, TOKEN)
    undo_log.complete(undo_log.record(Continue, process=WHO))
    undo_log.close()
    assert not path.exists()


def test_a_undo_log_on_which_something_is_owed_stays_when_it_is_closed(path):
    undo_log = UndoLog(path, TOKEN)
    undo_log.record(Continue, process=WHO)
    undo_log.close()
    assert len(read(path).undos) == 1


def test_there_are_no_two_undo_logs_of_one_name(undo_log, path):
    with pytest.raises(UndoLogError, match="can't be written"):
        UndoLog(path, TOKEN)


def test_a_undo_log_that_can_not_be_made_says_what_to_do(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UndoLogError, match="XDG_STATE_HOME"):
        UndoLog(tmp_path / "file" / "undo_log.jsonl", TOKEN)


def test_undo_logs_lie_in_the_state_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert undo_logs_folder() == tmp_path / "diloco-chaos" / "undo-logs"
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert undo_logs_folder() == tmp_path / ".local" / "state" / "diloco-chaos" / "undo-logs"


# -- what a crash leaves -------------------------------------------------------------------------------------------


def written(path, *lines, torn=""):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines) + torn)
    return path


OPENED = {"entry": "opened", "version": 1, "token": TOKEN, "pid": 4711}
STOPPED = {"entry": "continue", "number": 1, "cause": "f1", "process": [4711, 815]}


def test_a_torn_last_line_is_a_deed_that_was_never_done(path):
    owed = read(written(path, OPENED, STOPPED, torn='{"entry": "done", "num'))
    assert [undo.number for undo in owed.undos] == [1]


def test_a_last_line_that_lacks_only_its_end_does_not_count(path):
    assert read(written(path, OPENED, torn=json.dumps(STOPPED))).undos == []


@pytest.mark.parametrize("torn", ["", '{"entry": "ope', json.dumps(OPENED)])
def test_a_undo_log_whose_first_line_was_never_finished_says_nothing(path, torn):
    assert read(written(path, torn=torn)) is None


@pytest.mark.parametrize("line", [
    "nonsense", "[]", "{}", '{"entry": "explode"}', '{"entry": "done"}', "\xff\xfe", "[" * 100_000,
    '{"entry": "remove", "number": 1, "path": "/", "also": "this"}',
    '{"entry": "continue", "number": 1, "process": ["4711; rm", 1]}'])
def test_a_whole_line_that_is_not_a_undo_logs_is_named_and_nothing_is_guessed(path, line):
    written(path, OPENED)
    with path.open("ab") as file:
        file.write(line.encode("latin-1") + b"\n")
    with pytest.raises(UndoLogError, match=r"undo_log\.jsonl:2: not a line of an undo log"):
        read(path)


def test_a_undo_log_begins_with_whose_it_is(path):
    with pytest.raises(UndoLogError, match="begins with whose it is"):
        read(written(path, STOPPED))


@pytest.mark.parametrize("token", ["", "short", "g" * 32, "c0ffee" * 20])
def test_a_token_that_no_run_would_have_is_refused(path, token):
    with pytest.raises(UndoLogError, match="not a line of an undo log"):
        read(written(path, OPENED | {"token": token}))


def test_a_undo_log_that_is_not_there_is_told(path):
    with pytest.raises(UndoLogError, match="can't be read"):
        read(path)


FULL = """
import resource, sys
from pathlib import Path
from diloco_chaos.harness.record.undo_log import UndoLog
from diloco_chaos.harness.record.undos import Continue
from diloco_chaos.harness.base.processes import Identity
path = Path(sys.argv[1])
undo_log = UndoLog(path, "c0ffee" * 4)
undo_log.record(Continue, process=Identity(1, 1))
size = path.stat().st_size
resource.setrlimit(resource.RLIMIT_FSIZE, (size + 20, resource.RLIM_INFINITY))
try:
    undo_log.record(Continue, process=Identity(2, 2))
except Exception as error:
    print("refused", type(error).__name__)
else:
    print("done")
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
undo_log.record(Continue, process=Identity(3, 3))
"""


def test_a_line_that_did_not_fit_on_the_disk_is_an_error_and_spoils_no_other(path):
    """A write that the disk cuts short is no error to the kernel; for the undo log it has to be one."""
    done = subprocess.run([sys.executable, "-c", FULL, str(path)], capture_output=True, text=True, check=False)
    assert done.stdout.startswith("refused"), done
    assert 1 in [undo.number for undo in read(path).undos]


# -- who is in charge ----------------------------------------------------------------------------------------------


def test_a_undo_log_belongs_to_its_harness_while_it_lives(undo_log, path):
    with in_charge(path) as ours:
        assert not ours


def test_whoever_takes_the_lock_first_is_in_charge_alone(path):
    undo_log = UndoLog(path, TOKEN)
    undo_log.record(Continue, process=WHO)
    undo_log.close()
    with in_charge(path) as first, in_charge(path) as second:
        assert (first, second) == (True, False)
    with in_charge(path) as third:
        assert third


def test_nobody_is_in_charge_of_what_is_not_there(path):
    with in_charge(path) as ours:
        assert not ours


def test_the_kernel_gives_a_killed_harness_lock_back(path):
    child = subprocess.Popen(
        [sys.executable, "-c",
         "import sys, time\nfrom pathlib import Path\nfrom diloco_chaos.harness.record.undo_log import UndoLog\n"
         f"undo_log = UndoLog(Path(sys.argv[1]), '{TOKEN}')\nprint('here', flush=True)\ntime.sleep(60)", str(path)],
        stdout=subprocess.PIPE, text=True)
    child.stdout.readline()
    with in_charge(path) as ours:
        assert not ours
    child.send_signal(signal.SIGKILL)
    child.wait()
    with in_charge(path) as ours:
        assert ours


def test_nothing_that_the_harness_starts_inherits_the_lock(undo_log, path):
    with subprocess.Popen(["cat"], close_fds=False, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as child:
        try:
            child.stdin.write(b"up\n")  # until it answers it opens and closes its libraries, and the list would move
            assert child.stdout.readline() == b"up\n"
            with open(path) as file:
                held = os.readlink(f"/proc/self/fd/{file.fileno()}")
            theirs = [os.readlink(entry.path) for entry in os.scandir(f"/proc/{child.pid}/fd")]
            assert held not in theirs
            with open(path) as file, pytest.raises(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        finally:
            child.kill()
