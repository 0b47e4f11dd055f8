"""What is preloaded into nodes in pods: calls that fail, main threads that stand, and what is left of both. Pods are
agents on this machine; tests/alone/test_kubernetes.py has real ones."""

from __future__ import annotations

import signal
import subprocess
import sys
from contextlib import suppress

import psutil
import pytest

from diloco_chaos.harness.places.base import ClusterError, NodeSpec
from diloco_chaos.harness.places.capabilities import (
    CallFaults,
    CudaCalls,
    InnerMainThreads,
    InnerProcesses,
    MainThreads,
    Pods,
)
from diloco_chaos.harness.places.kubernetes.within import preloads as module
from diloco_chaos.harness.preload.cuda import CudaRule
from diloco_chaos.harness.preload.page import Rule
from diloco_chaos.harness.trainers.core.programs import Program
from fake_kubernetes import WORKER
from tests.support.stub_runtime import callers, stub_runtime

RANKED = """
import os, subprocess, sys, time
if "RANK" not in os.environ:
    for rank in "01":
        subprocess.Popen([sys.executable, __file__], env=os.environ | {"RANK": rank})
    time.sleep(600)
number, rank = 0, os.environ["RANK"]
while True:
    number += 1
    open(f"said-{rank}.new", "w").write(str(number))
    os.replace(f"said-{rank}.new", f"said-{rank}")
    time.sleep(0.002)
"""
RULE = Rule("*/tried", ["write"], "error", "ENOSPC")
TRIES = WORKER.replace("time.sleep(600)", """
import socket
peer = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
number = 0
while True:
    number += 1
    peer.sendto(b"tried", ("127.0.0.1", 9))
    try:
        open("tried", "wb", 0).write(b"tried")
        became = "written"
    except OSError as error:
        became = error.strerror
    open("said.new", "w").write(f"{number} {became}")
    os.replace("said.new", "said")
    time.sleep(0.002)
""")
ASKS_DEVICE = WORKER.replace("time.sleep(600)", """
import subprocess
number = 0
while True:
    number += 1
    answer = subprocess.run([PROGRAM], input="cudaMalloc 8", stdout=subprocess.PIPE, text=True).stdout
    open("said.new", "w").write(f"{number} {answer.split()[0]}")
    os.replace("said.new", "said")
""")
BROKEN = CudaRule(["cudaMalloc"], "error", 214, 214, lasts=True)
BOTH = frozenset({"fail_calls", "hang"})


@pytest.fixture
def begin(make_ground, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_AT", str(tmp_path / "preloaded"))

    def begun(preloaded=BOTH, made=None):
        ground = made or make_ground()
        ground.start(TRIES, preloaded=preloaded)
        return ground
    return begun


@pytest.fixture
def ground(begin):
    return begin()


def said(ground, pod="worker-0"):
    """The number of the last try in a pod, and what became of it."""
    file = ground.path / "pods" / pod / "said"
    ground.until(file.exists)
    number, _, became = file.read_text().partition(" ")
    return int(number), became


def next_try(ground, pod="worker-0"):
    """What becomes of a try that begins now."""
    last = said(ground, pod)[0]
    ground.until(lambda: said(ground, pod)[0] > last + 1)
    return said(ground, pod)[1]


def test_calls_on_files_fail_in_a_pod_and_are_counted_there(ground):
    faults = ground.cluster.having(CallFaults)
    assert next_try(ground) == "written"
    assert faults.arm("worker", "f1", RULE) == ""
    assert ground.cluster.residue() == ["worker: 1 faults of files"]
    assert next_try(ground) == "No space left on device"
    amid, _ = faults.hits("worker", "f1")
    faults.disarm("worker", "f1")
    assert next_try(ground) == "written"
    hits, others = faults.hits("worker", "f1")
    assert hits.calls["write"] >= amid.calls["write"] > 0
    assert hits.first.endswith("worker-0/tried")
    assert any(name.endswith("said.new") for name in others)
    assert ground.cluster.residue() == []


def test_the_pods_owe_the_end_of_it_and_nothing_else_is_owed(ground):
    ground.cluster.having(CallFaults).arm("worker", "f1", RULE)
    ground.cluster.having(MainThreads).hang("worker", "f2", "gil")
    assert ground.owed() == ["namespace"]


def test_a_second_rule_counts_anew(ground):
    faults = ground.cluster.having(CallFaults)
    for fault in ("f1", "f2"):
        faults.arm("worker", fault, RULE)
        next_try(ground)
        faults.disarm("worker", fault)
    faults.arm("worker", "f3", Rule("*/nowhere", ["write"], "error", "EIO"))
    assert next_try(ground) == "written"
    faults.disarm("worker", "f3")
    assert [bool(faults.hits("worker", fault)[0].calls) for fault in ("f1", "f2", "f3")] == [True, True, False]


def test_a_rule_holds_for_the_next_incarnation_and_for_the_next_pod(ground):
    faults = ground.cluster.having(CallFaults)
    faults.arm("worker", "f1", RULE)
    ground.cluster.kill("worker", 0.0)
    ground.back()
    assert next_try(ground) == "No space left on device"
    ground.cluster.having(Pods).delete_pod("worker", 0.0)
    assert next_try(ground, "worker-2") == "No space left on device"
    faults.disarm("worker", "f1")
    assert next_try(ground, "worker-2") == "written"
    assert faults.hits("worker", "f1")[0].calls["write"] > 0


def test_of_a_pod_that_is_gone_what_was_known_last_is_known(ground):
    faults = ground.cluster.having(CallFaults)
    faults.arm("worker", "f1", RULE)
    next_try(ground)
    known = faults.hits("worker", "f1")[0].calls["write"]
    ground.cluster.having(Pods).delete_pod("worker", 600.0)
    ground.until(lambda: ground.of("exit"))
    faults.disarm("worker", "f1")
    assert faults.hits("worker", "f1")[0].calls["write"] == known


@pytest.mark.parametrize("holding", ["gil", "nothing", "network"])
def test_a_main_thread_stands_in_a_pod_until_it_is_let_go(ground, holding):
    hangs = ground.cluster.having(MainThreads)
    said(ground)
    assert hangs.hang("worker", "f1", holding) == ""
    stands = ground.until(lambda: hangs.press("f1"))
    assert stands.call == ("sendto" if holding == "network" else "")
    assert ground.cluster.residue() == [f"the main thread of pid {stands.pid} stands"]
    stood = said(ground)
    for _ in range(20):
        ground.cluster.poll()
    assert said(ground) == stood
    hangs.release("f1")
    assert next_try(ground) == "written"
    assert ground.cluster.residue() == []


@pytest.fixture
def ranks(make_ground, tmp_path, monkeypatch):
    """A ground whose worker has two ranks, and what each of them has counted to."""
    monkeypatch.setattr(module, "_AT", str(tmp_path / "preloaded"))
    (tmp_path / "ranked.py").write_text(RANKED)
    ground = make_ground()
    ground.cluster.start([NodeSpec("worker", (), preloaded=frozenset({"hang"}), program=Program(
        f"{sys.executable} {tmp_path}/ranked.py", processes={"rank": r"RANK=(\d)"}))])

    def counted(rank):
        file = tmp_path / f"pods/worker-0/said-{rank}"
        ground.until(file.exists)
        return int(file.read_text())

    def goes_on(rank):
        last = counted(rank)
        ground.until(lambda: counted(rank) > last + 1)
        return True
    assert goes_on(0)
    assert goes_on(1)
    ranks = psutil.Process(ground.api.there["worker-0"].process.pid).children(recursive=True)
    yield ground, counted, goes_on
    for process in ranks:  # a container's end would be theirs
        with suppress(psutil.NoSuchProcess):
            process.kill()


def test_one_of_a_nodes_processes_stands_in_a_pod_and_the_other_goes_on(ranks):
    ground, counted, goes_on = ranks
    hangs = ground.cluster.having(InnerMainThreads)
    assert hangs.hang_inner("worker", "f1", "rank-1", "gil") == ""
    stands = ground.until(lambda: hangs.press("f1"))
    stood = counted(1)
    assert goes_on(0)
    assert counted(1) == stood
    assert ground.cluster.residue() == [f"the main thread of pid {stands.pid} stands"]
    hangs.release("f1")
    assert goes_on(1)


def test_a_process_that_there_is_not_in_a_pod_is_told(ranks):
    hangs = ranks[0].cluster.having(InnerMainThreads)
    assert hangs.hang_inner("worker", "f1", "rank-7", "gil") == "worker had no process rank-7"
    assert hangs.hang_inner("worker", "f1", "loader-1", "gil") == "worker had no process loader-1"
    assert ranks[0].cluster.having(InnerProcesses).signal_process("worker", "rank-7", signal.SIGKILL) == []


def test_one_of_a_nodes_processes_is_paused_and_killed_in_a_pod_and_the_other_goes_on(ranks):
    ground, counted, goes_on = ranks
    signals = ground.cluster.having(InnerProcesses)
    pid, = signals.signal_process("worker", "rank-1", signal.SIGSTOP)
    ground.until(lambda: psutil.Process(pid).status() == psutil.STATUS_STOPPED)
    stood = counted(1)
    assert goes_on(0)
    assert counted(1) == stood
    assert signals.signal_process("worker", "rank-1", signal.SIGCONT) == [pid]
    assert goes_on(1)
    assert signals.signal_process("worker", "rank-1", signal.SIGKILL) == [pid]
    ground.until(lambda: not signals.signal_process("worker", "rank-1", signal.SIGCONT)
                 or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    assert goes_on(0)


def test_a_device_fails_in_a_pod_and_in_the_next_one_until_it_is_healed(make_ground, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_AT", str(tmp_path / "preloaded"))
    stub_runtime(tmp_path)
    [program] = callers(tmp_path)["linked"]
    ground = make_ground()
    ground.start(ASKS_DEVICE.replace("PROGRAM", repr(str(program))), preloaded=frozenset({"cuda"}))
    calls = ground.cluster.having(CudaCalls)
    assert next_try(ground) == "0"
    assert calls.fail_cuda("worker", "f1", BROKEN) == ""
    assert ground.cluster.residue() == ["worker: calls of the CUDA runtime fail"]
    assert ground.owed() == ["namespace"]
    assert next_try(ground) == "214"
    ground.cluster.having(Pods).delete_pod("worker", 0.0)
    ground.back()
    assert next_try(ground, "worker-1") == "214"
    calls.heal_cuda("worker", "f1")
    assert next_try(ground, "worker-1") == "0"
    hits = calls.cuda_hits("worker", "f1")
    assert hits.calls["cudaMalloc"] == hits.processes > 1
    assert ground.cluster.residue() == []


def test_a_node_without_it_gets_no_signal_that_would_end_it(begin):
    ground = begin(frozenset({"fail_calls"}))
    hangs = ground.cluster.having(MainThreads)
    assert hangs.hang("worker", "f1", "gil") == (
        "worker: nothing was preloaded into its first process: is it linked statically?")
    assert hangs.hang_inner("worker", "f1", "rank-1", "gil") == "worker had no process rank-1"
    assert next_try(ground) == "written"


def test_one_that_is_dead_does_not_stand(ground):
    ground.cluster.kill("worker", 600.0)
    ground.until(lambda: ground.of("exit"))
    assert ground.cluster.having(MainThreads).hang("worker", "f1", "gil") == "worker was not there"


def test_a_machine_of_another_kind_is_refused_and_nothing_is_left(begin, make_ground, monkeypatch):
    ground = make_ground()
    kind = module.os.uname()
    monkeypatch.setattr(module.os, "uname", lambda: type(kind)((*kind[:4], "riscv64")))
    with pytest.raises(ClusterError, match=rf"^worker: worker-0 is on a machine of another kind \({kind.machine}, and "
                                           r"this one is riscv64\).* `node_selector`"):
        begin(made=ground)
    ground.cluster.stop()
    assert ground.owed() == []


@pytest.mark.parametrize(("ability", "words"), [("fail_calls", "io: .* no call there can fail"),
                                                ("cuda", "cuda: .* no call of the CUDA runtime can fail there"),
                                                ("hang", "hang: .* its main thread can't be made to stand")])
def test_one_that_loads_nothing_is_told_as_the_run_begins(begin, monkeypatch, ability, words):
    monkeypatch.setattr(module, "LOADS_S", 0.0)
    monkeypatch.setattr(module.PodPreloads, "environment", lambda *_: {})
    with pytest.raises(ClusterError, match=rf"^worker: {words}: its program is linked statically"):
        begin(frozenset({ability}))


def test_without_a_compiler_nothing_is_made(make_ground, monkeypatch):
    monkeypatch.setenv("CC", "no-such-compiler")
    ground = make_ground()
    with pytest.raises(ClusterError, match="io needs a C compiler, and there is none"):
        ground.start(TRIES, preloaded=frozenset({"fail_calls"}))
    assert (ground.owed(), ground.api.made) == ([], [])


def test_a_page_that_something_has_cut_off_is_told(ground, tmp_path):
    subprocess.run(["truncate", "--size=8", tmp_path / "preloaded/worker.page"], check=True)
    with pytest.raises(ClusterError, match=r"^worker-0: something has changed .*worker\.page"):
        ground.cluster.having(CallFaults).arm("worker", "f1", RULE)
