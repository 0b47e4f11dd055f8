"""The parts of `make test`, and how each of them runs."""

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

import parts

HERE = Path(__file__).parent


@pytest.fixture
def part(tmp_path, monkeypatch):
    """A part of one test, from its lines."""
    monkeypatch.setattr(parts, "REPORTS", tmp_path)

    def made(*lines):
        file = tmp_path / "test_part.py"
        file.write_text("import os, time\ndef test_it():\n" + "".join(f"    {line}\n" for line in lines))
        return parts.Part("part", [str(file), "--rootdir", str(tmp_path), "-p", "no:cacheprovider", "-q"])
    return made


@pytest.mark.parametrize(("line", "passes"), [("pass", True), ("assert False", False)])
def test_a_part_says_whether_it_passed_and_leaves_a_report(part, line, passes):
    one = part(line)
    assert parts.passed(one) is passes
    assert "test_it" in one.report.read_text()


def test_unit_tests_give_way_to_all_others(part, tmp_path):
    one = part("assert os.sched_getscheduler(0) == os.SCHED_IDLE", "assert os.getsid(0) == os.getpid()")
    with (tmp_path / "log").open("wb") as log, parts.Running(one, log, parts.give_way) as running:
        assert running.passed(), (tmp_path / "log").read_text()


def test_a_part_waits_until_nobody_else_has_the_turn(tmp_path, monkeypatch):
    monkeypatch.setenv(parts.TURN, str(tmp_path / "turn"))
    with (tmp_path / "turn").open("w") as other:
        with parts.turn(), pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_part_that_is_not_waited_for_ends_as_after_ctrl_c(part, tmp_path):
    begun, ended = tmp_path / "begun", tmp_path / "ended"
    one = part(f"open({str(begun)!r}, 'w').close()", "try:", "    time.sleep(600)",
               "finally:", f"    open({str(ended)!r}, 'w').close()")
    with parts.Running(one):
        while not begun.exists():
            pass
    assert ended.exists()


def test_a_shell_that_ignores_ctrl_c_for_it_keeps_it_from_no_test(tmp_path):
    """A shell starts what is to run in the background so."""
    code = ("import signal, parts; parts.all_passed = lambda _: [print(signal.getsignal(signal.SIGINT).__name__)];"
            "parts.summary.main = lambda _: 0; parts.main([])")
    done = subprocess.run(["sh", "-c", f"trap '' INT; exec {sys.executable} -c \"{code}\""], capture_output=True,
                          text=True, check=False, env=os.environ | {"PYTHONPATH": str(HERE)}, cwd=tmp_path)
    assert done.stdout == "default_int_handler\n", done.stderr
