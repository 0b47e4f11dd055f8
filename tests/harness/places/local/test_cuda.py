"""Calls of the CUDA runtime that fail in the processes of one node."""

import json
import os
import subprocess
from types import SimpleNamespace

import pytest

from diloco_chaos.harness.places.base import NodeSpec
from diloco_chaos.harness.places.local.cuda import CudaFaults
from diloco_chaos.harness.places.local.preloads import Preloads
from diloco_chaos.harness.preload.cuda import CudaHits, CudaRule
from diloco_chaos.harness.record.reaper import heal
from diloco_chaos.harness.record.undo_log import UndoLog
from diloco_chaos.harness.trainers.core.programs import Program
from tests.support.stub_runtime import callers, stub_runtime

TOKEN = "0123456789abcdef0123456789abcdef"
BROKEN = CudaRule(["cudaMalloc"], "error", 214, 214, lasts=True)
SLOW = CudaRule(["cudaMalloc"], "delay", delay_s=0.001)


class Nodes(dict):
    """Nodes of which each may end by what it meets."""

    def __init__(self, specs):
        super().__init__({spec.name: SimpleNamespace(spec=spec) for spec in specs})
        self.may_end = []

    def expect_no_space(self, node, fault, restart_after):
        self.may_end.append(node)

    def space_again(self, node, fault):
        self.may_end.remove(node)


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cuda")
    stub_runtime(folder)
    return callers(folder)["linked"]


@pytest.fixture
def ground(tmp_path, program):
    (tmp_path / "run").mkdir()
    log = UndoLog(tmp_path / "undo-log", TOKEN)
    nodes = Nodes([NodeSpec("a", (), program=Program("x"), preloaded=frozenset({"cuda"})),
                   NodeSpec("b", (), program=Program("x"), preloaded=frozenset({"cuda"})),
                   NodeSpec("ours", (), preloaded=frozenset({"cuda"}))])
    preloads = Preloads(tmp_path / "run", nodes, log)
    preloads.begin([node.spec for node in nodes.values()])

    def call(node):
        environment = os.environ | preloads.environment(node, "")
        answer = subprocess.check_output(program, input="cudaMalloc 8\n", env=environment, text=True)
        return int(answer.split()[0])
    return SimpleNamespace(faults=CudaFaults(preloads, nodes, log), nodes=nodes, log=log, call=call, path=tmp_path)


def test_every_process_of_the_node_fails_until_it_is_healed_and_no_other(ground):
    assert ground.call("a") == 0
    assert ground.faults.fail_cuda("a", "f1", BROKEN) == ""
    assert [ground.call("a"), ground.call("a"), ground.call("b")] == [214, 214, 0]
    assert ground.faults.residue() == ["a: calls of the CUDA runtime fail"]
    ground.faults.heal_cuda("a", "f1")
    ground.faults.heal_cuda("a", "f1")
    assert ground.call("a") == 0
    assert ground.faults.residue() == []
    assert ground.faults.cuda_hits("a", "f1") == CudaHits({"cudaMalloc": 2}, {"cudaMalloc": 2}, 2)
    assert ground.faults.cuda_hits("b", "f1") is None


def test_one_device_has_one_fault_at_a_time(ground):
    ground.call("a")
    ground.faults.fail_cuda("a", "f1", BROKEN)
    assert ground.faults.fail_cuda("a", "f2", SLOW) == "a: another fault of its device lasts: one at a time"
    ground.faults.heal_cuda("a", "f2")
    assert ground.call("a") == 214
    ground.faults.heal_cuda("a", "f1")
    assert ground.faults.fail_cuda("a", "f2", SLOW) == ""
    ground.call("a")
    assert ground.faults.cuda_hits("a", "f1").processes == 1
    assert ground.faults.cuda_hits("a", "f2") == CudaHits({"cudaMalloc": 1}, {"cudaMalloc": 1}, 1)


def test_where_nothing_was_preloaded_it_is_said(ground):
    assert ground.faults.fail_cuda("a", "f1", BROKEN).startswith("a: nothing was preloaded into it: ")


def test_a_harness_that_dies_leaves_a_device_that_its_reaper_heals(ground):
    ground.faults.fail_cuda("a", "f1", BROKEN)
    assert json.loads((ground.path / "undo-log").read_text().splitlines()[-1])["entry"] == "disarm_cuda"
    ground.log.close()
    words = [str(each) for each in heal(ground.path / "undo-log")]
    assert words[0].startswith("calls of the CUDA runtime fail no more by ")
    assert ground.call("a") == 0


@pytest.mark.parametrize(("rule", "ends"), [(BROKEN, ["ours"]), (SLOW, [])])
def test_a_node_of_ours_may_end_by_an_error_and_by_nothing_else(ground, rule, ends):
    ground.faults.fail_cuda("ours", "f1", rule)
    assert ground.nodes.may_end == ends
    ground.faults.heal_cuda("ours", "f1")
    assert ground.nodes.may_end == []
