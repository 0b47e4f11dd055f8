"""Stacks of processes that hang: of ours alone, with whatever this machine has to take them with."""

import json
import os
import subprocess
import sys
import time

import pytest

from diloco_chaos.harness.base.processes import TOKEN, identity, state
from diloco_chaos.harness.places.stacks.spy import MISSING, binary
from diloco_chaos.harness.places.stacks.taking import take, write

WAITS = "import threading\ndef waits_for_ever():\n print('there', flush=True)\n threading.Event().wait()\n"


@pytest.fixture
def hanging():
    """hanging(token, **environment) -> identity of a process that waits for ever."""
    started = []

    def hang(token, **environment):
        started.append(subprocess.Popen([sys.executable, "-c", f"{WAITS}waits_for_ever()"], stdout=subprocess.PIPE,
                                        env={**os.environ, TOKEN: token, **environment}))
        started[-1].stdout.readline()
        while state(started[-1].pid) != "S":
            time.sleep(0.01)
        return identity(started[-1].pid)
    yield hang
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def program(tmp_path):
    """program(script) -> a program that takes the place of py-spy."""
    def made(script):
        path = tmp_path / "spy"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return str(path)
    return made


def test_where_py_spy_is_missing_the_kernel_tells_and_what_would_bring_the_rest_is_named(hanging):
    process = hanging("ours")
    first, second, third = take({"w-1.0": [process]}, "ours", spy="")["w-1.0"]
    assert first == f"frames of Python are not told: {MISSING}"
    assert second.startswith(f"pid {process.pid}  {sys.executable}")
    assert second.endswith("(S)")
    assert "kernel" in third


@pytest.mark.skipif(not binary(), reason="py-spy is not installed")
def test_py_spy_tells_the_frames_of_python(hanging):
    lines = take({"w-1.0": [hanging("ours")]}, "ours")["w-1.0"]
    assert any("waits_for_ever  <string>:4" in line for line in lines) or any("py-spy was refused" in line
                                                                              for line in lines)


def test_a_process_of_others_is_not_looked_at(hanging, program, tmp_path):
    spy = program(f"echo asked >> {tmp_path / 'asked'}; echo '[]'")
    assert take({"w-1.0": [hanging("theirs")]}, "ours", spy) == {"w-1.0": []}
    assert not (tmp_path / "asked").exists()


FRAME = {"name": "wait", "filename": "/x/threading.py", "short_filename": "threading.py", "line": 5}


@pytest.mark.parametrize(("script", "told"), [
    ("echo '" + json.dumps([{"thread_id": 7, "thread_name": None, "owns_gil": True, "frames": [FRAME]}]) + "'",
     ["  thread 7 (holds the GIL)", "    wait  threading.py:5"]),
    ("echo 'Permission Denied: try sudo' >&2; exit 1", ["  not told: py-spy was refused: it needs the right to trace "
     "processes (root, sysctl kernel.yama.ptrace_scope=0, or --cap-add SYS_PTRACE for a container)"]),
    ("echo 'Error: Failed to find python version from target process' >&2; exit 1", []),
    ("echo 'Error: no such process' >&2; exit 1", ["  not told: py-spy: error: no such process"]),
    ("echo '{'", ["  not told: what py-spy answered can't be understood"]),
    ("exec sleep 60", ["  not told: py-spy did not answer in time"])])
def test_what_py_spy_says_is_told_and_what_it_does_not_say_has_a_reason(hanging, program, script, told):
    _, *lines = take({"w-1.0": [hanging("ours")]}, "ours", program(script))["w-1.0"]
    assert [line for line in lines if not line.startswith(("  kernel: ", "  the kernel's"))] == told


def test_what_a_flight_recorder_has_that_is_not_over_is_told(hanging, program, tmp_path):
    entry = {"profiling_name": "gloo:all_reduce", "collective_seq_id": 9, "process_group": ["0", "default_pg"],
             "input_sizes": [[4]], "state": "scheduled"}
    (tmp_path / "fr_3").write_text(json.dumps({"entries": [entry | {"retired": True}, entry | {"retired": False}]}))
    process = hanging("ours", TORCH_FR_DUMP_TEMP_FILE=str(tmp_path / "fr_"), RANK="3")
    lines = take({"w-1.0": [process]}, "ours", program("echo '[]'"))["w-1.0"]
    assert lines[-2:] == ["  flight recorder fr_3: 2 collectives, 1 of them not over",
                          "  flight recorder fr_3: gloo:all_reduce, number 9 of group 0 default_pg, sizes [[4]]"]


@pytest.mark.parametrize(("content", "why"), [
    (b"\x80\x04K\x01.", "a pickle, which is not read"), (b"{", "can't be understood"), (b'{"entries": 3}', "can't be")])
def test_a_flight_recorder_that_wrote_something_else_is_not_believed(hanging, program, tmp_path, content, why):
    (tmp_path / "fr_0").write_bytes(content)
    process = hanging("ours", TORCH_FR_DUMP_TEMP_FILE=str(tmp_path / "fr_"))
    assert why in take({"w-1.0": [process]}, "ours", program("echo '[]'"))["w-1.0"][-1]


def test_stacks_are_kept_in_the_folder_of_the_run_for_nodes_that_have_any(tmp_path):
    write(tmp_path, {"w-1.0": ["pid 7  \x1b[31mx", "  wait"], "w-2.0": []})
    assert [path.name for path in (tmp_path / "stacks").iterdir()] == ["w-1.0.txt"]
    assert "\x1b" not in (tmp_path / "stacks" / "w-1.0.txt").read_text()
