"""Which process of a node stands, and what is left of it."""

import json
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from diloco_chaos.harness.base.processes import TOKEN as TOKEN_NAME
from diloco_chaos.harness.base.processes import identity
from diloco_chaos.harness.places.base import NodeSpec
from diloco_chaos.harness.places.local.hangs import InnerHangs
from diloco_chaos.harness.places.local.preloads import Preloads
from diloco_chaos.harness.record.reaper import heal
from diloco_chaos.harness.record.undo_log import UndoLog
from diloco_chaos.harness.trainers.core.programs import Program

TOKEN = "0123456789abcdef0123456789abcdef"
COMPUTE = "print(1, flush=True)\nwhile True: sum(range(1000))"


class Family:
    """One process is called rank-1."""

    def __init__(self, pid):
        self.pid = pid

    def called(self, expression, which):
        return [identity(self.pid)] if (expression, which) == ("RANK", "1") else []


@pytest.fixture
def ground(tmp_path):
    """What hangs, with a process that has it preloaded, and one that has not."""
    (tmp_path / "run").mkdir()
    log, nodes, processes = UndoLog(tmp_path / "undo-log", TOKEN), {}, []
    preloads = Preloads(tmp_path / "run", nodes, log)
    spec = NodeSpec("w", (), program=Program("x", processes={"rank": "RANK"}), preloaded=frozenset({"hang"}))
    preloads.begin([spec])

    def started(environment):
        process = subprocess.Popen([sys.executable, "-c", COMPUTE], stdout=subprocess.PIPE,
                                   env={**os.environ, TOKEN_NAME: TOKEN, **environment})
        process.stdout.readline()
        processes.append(process)
        return process
    first, other = started(preloads.environment("w", "")), started({})
    nodes["w"] = SimpleNamespace(process=SimpleNamespace(pid=first.pid, family=Family(other.pid)), spec=spec)
    yield SimpleNamespace(hangs=InnerHangs(preloads, nodes, log), first=first, log=log, path=tmp_path, nodes=nodes,
                          preloads=preloads)
    for process in processes:
        process.kill()
        process.communicate()


def test_the_first_process_stands_and_is_let_go(ground):
    assert ground.hangs.hang("w", "f1", "gil") == ""
    while not ground.hangs.press("f1"):
        pass
    assert ground.hangs.press("f1").pid == ground.first.pid
    assert ground.hangs.residue() == [f"the main thread of pid {ground.first.pid} stands"]
    ground.hangs.release("f1")
    ground.hangs.release("f1")
    assert ground.hangs.residue() == []
    assert ground.hangs.press("f1") is None


def test_a_process_that_would_die_of_the_signal_gets_none(ground):
    assert ground.hangs.hang_inner("w", "f1", "rank-1", "gil") == (
        "w: nothing was preloaded into rank-1: is it linked statically?")
    assert ground.hangs.hang_inner("w", "f1", "rank-2", "gil") == "w had no process rank-2"
    assert ground.hangs.residue() == []


def test_of_a_node_one_stands_at_a_time(ground):
    ground.hangs.hang("w", "f1", "gil")
    assert ground.hangs.hang("w", "f2", "gil") == "w: another main thread of it is to stand: one at a time"
    ground.hangs.release("f2")
    while not ground.hangs.press("f1"):
        pass
    ground.hangs.release("f1")
    assert ground.hangs.hang("w", "f2", "gil") == ""


def test_of_a_dead_harness_its_reaper_lets_it_go(ground):
    ground.hangs.hang("w", "f1", "gil")
    written = [json.loads(line) for line in (ground.path / "undo-log").read_text().splitlines()]
    assert written[-1]["entry"] == "release"
    ground.log.close()
    assert next(str(words) for words in heal(ground.path / "undo-log")).startswith("main threads that stand by ")
    assert not ground.preloads.page("w")[0].release()
