"""What is preloaded into nodes in containers: calls that fail, main threads that stand, and what is left of both."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from diloco_chaos.harness.places.base import ClusterError, NodeSpec
from diloco_chaos.harness.places.capabilities import CallFaults, CudaCalls, MainThreads
from diloco_chaos.harness.preload.cuda import CudaRule
from diloco_chaos.harness.preload.page import Page, Rule
from diloco_chaos.harness.record.reaper import heal
from diloco_chaos.harness.record.undo_log import read
from diloco_chaos.harness.trainers.core.programs import Program
from tests.support.stub_runtime import callers, stub_runtime

ROOT = Path(__file__).parents[4]
RULE = Rule("{run}/state/*.tried", ["write"], "error", "ENOSPC")
TRY = "\ntry:\n write('{name}.tried', 1); write('{name}', 'written')\n" \
    "except OSError as error:\n write('{name}', error.strerror)"


@pytest.fixture(scope="module")
def begun(engine, shared_ground):
    """The shared cluster, and a worker in it that has everything preloaded."""
    shared_ground.cluster.join(replace(shared_ground.worker("w"), preloaded=frozenset({"fail_calls", "hang"})))
    shared_ground.runs("w")
    return shared_ground


@pytest.fixture
def ground(begun):
    """The same, with the worker at work."""
    begun.runs("w")
    return begun


def tried(ground, name):
    """What became of a file that the worker was to write."""
    ground.order(TRY.format(name=name), "w")
    said = ground.path / "state" / name
    ground.until(said.exists, poll=False)
    return said.read_text()


def test_calls_on_files_fail_in_a_container_and_are_counted_there(ground):
    faults = ground.cluster.having(CallFaults)
    assert tried(ground, "before") == "written"
    assert faults.arm("w", "f1", RULE) == ""
    assert ground.cluster.residue() == ["w: 1 faults of files"]
    assert "disarm" in ground.owed()
    assert tried(ground, "amid") == "No space left on device"
    faults.disarm("w", "f1")
    assert tried(ground, "after") == "written"
    hits, _ = faults.hits("w", "f1")
    assert (set(hits.calls), hits.first) == ({"write"}, "state/amid.tried.partial")
    assert ground.cluster.residue() == []
    assert "disarm" not in ground.owed()


def test_a_rule_holds_for_the_next_container_too(ground):
    faults, before = ground.cluster.having(CallFaults), ground.number("w")
    faults.arm("w", "f2", RULE)
    ground.cluster.kill("w", 0.0)
    ground.until(lambda: ground.number("w") == before + 1)
    ground.runs("w")
    assert tried(ground, "later") == "No space left on device"
    faults.disarm("w", "f2")


@pytest.mark.parametrize("holding", ["gil", "nothing"])
def test_a_main_thread_stands_in_a_container_until_it_is_let_go(ground, holding):
    hangs = ground.cluster.having(MainThreads)
    assert hangs.hang("w", holding, holding) == ""
    ground.until(lambda: hangs.press(holding))
    assert ground.cluster.residue() == [f"the main thread of pid {ground.pid('w')} stands"]
    assert "release" in ground.owed()
    count = ground.count("w")
    for _ in range(20):
        ground.cluster.poll()
    assert ground.count("w") == count
    hangs.release(holding)
    ground.runs("w")
    assert ground.cluster.residue() == []


def test_a_node_without_it_gets_no_signal_that_would_end_it(ground):
    hangs = ground.cluster.having(MainThreads)
    assert hangs.hang("worker", "f3", "gil") == (
        "worker: nothing was preloaded into its first process: is it linked statically?")
    ground.runs("worker")


def command(name, run, image="python:3.11-slim"):
    return NodeSpec(name, (), program=Program(run, image=image), preloaded=frozenset({"fail_calls"}))


def test_a_static_program_is_told_as_the_run_begins(contained):
    ground = contained()
    (ground.path / "still.c").write_text("#include <unistd.h>\nint main(void) { for (;;) pause(); }")
    subprocess.run(["cc", "-static", "-o", ground.path / "still", ground.path / "still.c"], check=True)
    with pytest.raises(ClusterError, match=r"^w: io: nothing was preloaded into its container.* linked statically"):
        ground.start(command("w", "{run}/still"))
    ground.stop()
    assert ground.engine.labelled(ground.run) == []


def test_a_command_in_an_image_of_its_own_has_a_page(contained):
    ground = contained()
    ground.start(command("w", "{python} -c 'import time; time.sleep(600)'"))
    assert ground.cluster.having(CallFaults).arm("w", "f1", RULE) == ""
    ground.stop()
    assert not list(ground.path.rglob("*.page"))


ASKS_DEVICE = """
import itertools, os, subprocess, sys
for number in itertools.count():
    answer = subprocess.run([sys.argv[1]], input="cudaMalloc 8", stdout=subprocess.PIPE, text=True).stdout
    open(f"{sys.argv[2]}.new", "w").write(f"{number} {answer.split()[0]}")
    os.replace(f"{sys.argv[2]}.new", sys.argv[2])
"""


def test_a_device_fails_in_a_container_and_in_the_next_one_until_it_is_healed(contained):
    ground = contained()
    (ground.path / "state").mkdir(exist_ok=True)
    stub_runtime(ground.path)
    [program] = callers(ground.path)["linked"]
    script, said = ground.path / "asks.py", ground.path / "state" / "said"
    script.write_text(ASKS_DEVICE)
    ground.start(replace(command("w", f"{{python}} {script} {program} {said}"), preloaded=frozenset({"cuda"})))
    calls = ground.cluster.having(CudaCalls)

    def answer():
        ground.until(said.exists)
        last = said.read_text()
        ground.until(lambda: said.read_text() != last)
        before = said.read_text()
        ground.until(lambda: said.read_text() != before)
        return said.read_text().split()[1]
    assert answer() == "0"
    assert calls.fail_cuda("w", "f1", CudaRule(["cudaMalloc"], "error", 214, 214, lasts=True)) == ""
    assert ground.cluster.residue() == ["w: calls of the CUDA runtime fail"]
    assert "disarm_cuda" in ground.owed()
    assert answer() == "214"
    before = ground.number("w")
    ground.cluster.kill("w", 0.0)
    ground.until(lambda: ground.number("w") == before + 1)
    assert answer() == "214"
    calls.heal_cuda("w", "f1")
    assert answer() == "0"
    hits = calls.cuda_hits("w", "f1")
    assert hits.calls["cudaMalloc"] == hits.processes > 1
    assert ground.cluster.residue() == []


def test_without_a_compiler_nothing_is_started(contained, monkeypatch):
    ground = contained()
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(ClusterError, match="io needs a C compiler, and there is none"):
        ground.start(command("w", "{python} -V"))
    assert ground.owed() == []


HARNESS = """
import sys, time
from pathlib import Path
from diloco_chaos.harness.places.base import NodeSpec
from diloco_chaos.harness.places.capabilities import CallFaults, MainThreads
from diloco_chaos.harness.places.cluster import Cluster
from diloco_chaos.harness.places.compose.site import ComposeSite
from diloco_chaos.harness.preload.page import Rule
from diloco_chaos.harness.record.undo_log import UndoLog
from diloco_chaos.harness.trainers.core.programs import Program
run, token = Path(sys.argv[1]), sys.argv[2]
cluster = Cluster(ComposeSite(run, lambda event: None, UndoLog(run.parent / "undo_log.jsonl", token)))
program = Program("{python} -c 'while True: sum(range(1000))'", image="python:3.11-slim")
cluster.start([NodeSpec("w", (), program=program, preloaded=frozenset({"fail_calls", "hang"}))])
assert not cluster.having(CallFaults).arm("w", "f1", Rule("*", ["write"], "error", "EIO"))
assert not cluster.having(MainThreads).hang("w", "f2", "gil")
while not cluster.having(MainThreads).press("f2"):
    pass
print("up", flush=True)
time.sleep(600)
"""


def test_of_a_killed_harness_nothing_holds_and_nothing_is_left(engine, tmp_path):
    token = "ab" * 16
    run, undo_log = tmp_path / "test-of-a-killed-one", tmp_path / "undo_log.jsonl"
    run.mkdir(mode=0o755)
    process = subprocess.Popen([sys.executable, "-c", HARNESS, str(run), token], cwd=ROOT, stdout=subprocess.PIPE,
                               text=True)
    try:
        assert process.stdout.readline() == "up\n"
        process.kill()
        process.wait()
        assert [undo.entry for undo in read(undo_log).undos] == ["release", "disarm", "containers"]
        list(heal(undo_log))
        [page] = run.rglob("*.page")
        assert (Page(page).armed, Page(page).release()) == (0, False)
        assert engine.labelled(token[:12]) == []
        assert not undo_log.exists()
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        engine.remove(token[:12])
