"""Calls on files that fail in the processes of one node, and in those of no other."""

import errno
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from diloco_chaos.harness.places.base import ClusterError, NodeSpec
from diloco_chaos.harness.places.capabilities import CallFaults
from diloco_chaos.harness.places.local.preloads import PAGE, Preloads
from diloco_chaos.harness.preload.page import Page, Rule
from diloco_chaos.harness.record.reaper import heal
from diloco_chaos.harness.record.undo_log import UndoLog
from diloco_chaos.harness.trainers.core.programs import Program

TOKEN = "0123456789abcdef0123456789abcdef"
RULE = Rule("{run}/state/{name}/*", ["write"], "error", "ENOSPC")
WRITE = "import os, sys\ntry: os.write(os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT), b'x')\n" \
    "except OSError as error: sys.exit(error.errno)"


class Nobody:
    """Nodes of which none runs."""

    def __init__(self):
        self.without_space = []

    def expect_no_space(self, node, fault, restart_after):
        self.without_space.append((node, fault))

    def space_again(self, node, fault):
        self.without_space.remove((node, fault))


def spec(name, run="{python} train.py", preloaded=True):
    return NodeSpec(name, (), program=Program(run), preloaded=frozenset({"fail_calls"} if preloaded else ()))


@pytest.fixture
def undo_log(tmp_path):
    return UndoLog(tmp_path / "undo-log", TOKEN)


@pytest.fixture
def preloads(tmp_path, undo_log):
    (tmp_path / "run").mkdir()
    made = Preloads(tmp_path / "run", Nobody(), undo_log)
    made.begin([spec("a"), spec("b"), spec("c", preloaded=False)])
    return made


@pytest.fixture
def write(preloads, tmp_path):
    def status(node, name):
        path = tmp_path / "run" / "state" / node / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return subprocess.run([sys.executable, "-c", WRITE, path], check=False,
                              env=os.environ | preloads.environment(node, "")).returncode
    return status


def test_a_rule_holds_for_its_node_until_it_is_disarmed(preloads, write):
    assert write("a", "x") == 0
    assert preloads.arm("a", "f1", RULE) == ""
    assert (write("a", "x"), write("b", "x")) == (errno.ENOSPC, 0)
    assert preloads.residue() == ["a: 1 faults of files"]
    preloads.disarm("a", "f1")
    preloads.disarm("a", "f1")
    assert write("a", "x") == 0
    assert preloads.residue() == []


def test_what_the_run_is_judged_by_stays_whole(preloads, write, tmp_path):
    preloads.arm("a", "f1", Rule("*", ["write"], "error", "EIO"))
    for folder in ("logs", "progress", "tape"):
        (tmp_path / "run" / folder).mkdir()
        assert write("a", f"../../{folder}/a.0.log") == 0
    assert write("a", "../a.0.log") == errno.EIO


def test_what_it_did_is_known_also_when_another_one_has_come_since(preloads, write):
    write("a", "x")
    preloads.arm("a", "f1", RULE)
    write("a", "x")
    preloads.disarm("a", "f1")
    preloads.arm("a", "f2", RULE)
    first, second = preloads.hits("a", "f1"), preloads.hits("a", "f2")
    assert first[0].calls == {"write": 1}
    assert first[0].first == "state/a/x"
    assert second[0].calls == {}
    assert preloads.hits("b", "f1") is None


def test_nothing_is_preloaded_into_a_node_that_no_fault_is_for(preloads):
    assert preloads.environment("c", "libother.so") == {}
    assert preloads.environment("a", "libother.so")["LD_PRELOAD"].split()[1:] == ["libother.so"]


def test_what_passes_calls_on_is_loaded_before_what_does_not(tmp_path, undo_log):
    (tmp_path / "run").mkdir()
    made = Preloads(tmp_path / "run", Nobody(), undo_log)
    made.begin([replace(spec("a"), preloaded=frozenset({"fail_calls", "hang", "lose_unsynced"}))])
    assert [library.stem for library in made.libraries("a")] == ["unsynced", "hang", "io"]


def test_a_harness_that_dies_leaves_rules_that_its_reaper_disarms(preloads, undo_log, write, tmp_path):
    write("a", "x")
    preloads.arm("a", "f1", RULE)
    written = [json.loads(line) for line in (tmp_path / "undo-log").read_text().splitlines()]
    assert written[-1]["entry"] == "disarm"
    undo_log.close()
    assert next(str(words) for words in heal(tmp_path / "undo-log")).startswith("calls fail no more by rule 0 of ")
    assert write("a", "x") == 0


def test_a_page_of_another_run_is_left_alone(tmp_path):
    log = UndoLog(tmp_path / "undo-log", TOKEN)
    page = Page(tmp_path / "page", "f" * 32)
    from diloco_chaos.harness.places.local.undos import Disarm
    log.record(Disarm, page=tmp_path / "page", rule=page.arm(RULE))
    log.close()
    list(heal(tmp_path / "undo-log"))
    assert page.armed == 1


def test_a_program_that_loads_nothing_is_told_as_that(tmp_path, undo_log):
    source = tmp_path / "still.c"
    source.write_text("int main(void) { return 0; }")
    subprocess.run(["cc", "-static", "-o", tmp_path / "still", source], check=True)
    (tmp_path / "run").mkdir()
    preloads = Preloads(tmp_path / "run", Nobody(), undo_log)
    preloads.begin([spec("a", f"{tmp_path}/still"), spec("b", "{python} x.py")])
    assert preloads.arm("a", "f1", RULE) == "a: still is linked statically: nothing can be preloaded into it"
    assert preloads.arm("b", "f1", RULE) == ("b: nothing was preloaded into it: does its command change its "
                                             "environment, or its user?")


def test_what_ties_a_command_to_the_harness_is_no_process_of_its(make_ground, tmp_path):
    source = tmp_path / "still.c"
    source.write_text("#include <unistd.h>\nint main(void) { return pause(); }")
    subprocess.run(["cc", "-static", "-o", tmp_path / "still", source], check=True)
    ground = make_ground()
    ground.cluster.start([spec("a", f"{tmp_path}/still"), spec("b", "{python} -c 'import time; time.sleep(60)'")])
    program = Path(f"/proc/{ground.cluster.states()['a'].pid}/exe")
    ground.until(lambda: program.resolve() == tmp_path / "still")
    calls = ground.cluster.having(CallFaults)
    assert calls.arm("a", "f1", RULE) == "a: still is linked statically: nothing can be preloaded into it"
    calls.disarm("a", "f1")
    ground.until(lambda: not calls.missing("b"))


def test_without_a_compiler_it_is_said_what_to_install(tmp_path, undo_log, monkeypatch):
    monkeypatch.setenv("CC", "no-such-compiler")
    (tmp_path / "run").mkdir()
    with pytest.raises(ClusterError, match="io needs a C compiler, and there is none: install gcc or clang"):
        Preloads(tmp_path / "run", Nobody(), undo_log).begin([spec("a")])


def test_a_node_of_ours_may_end_by_an_error_and_by_nothing_else(tmp_path, undo_log):
    (tmp_path / "run").mkdir()
    nodes = Nobody()
    preloads = Preloads(tmp_path / "run", nodes, undo_log)
    preloads.begin([NodeSpec("syncer", (), preloaded=frozenset({"fail_calls"}))])
    preloads.arm("syncer", "f1", Rule("*", ["fsync"], "delay", delay_s=0.1))
    assert nodes.without_space == []
    preloads.arm("syncer", "f2", Rule("*", ["fsync"], "error", "EIO"))
    assert nodes.without_space == [("syncer", "f2")]
    preloads.disarm("syncer", "f1")
    assert nodes.without_space == [("syncer", "f2")]
    preloads.disarm("syncer", "f2")
    assert nodes.without_space == []


def test_a_node_that_joins_has_a_page_too_and_an_old_one_is_made_anew(preloads, tmp_path):
    preloads.begin([spec("d")])
    preloads.arm("a", "f1", RULE)
    preloads.begin([spec("a")])
    assert preloads.environment("d", "")[PAGE].endswith("d.page")
    assert preloads.residue() == []


def test_a_pattern_that_is_too_long_in_the_runs_folder_is_refused(preloads):
    with pytest.raises(ClusterError, match="is longer than 511 bytes"):
        preloads.arm("a", "f1", Rule("{run}/" + "x" * 500, ["write"], "error", "EIO"))


def test_containers_find_it_where_it_is_mounted_and_nobody_else_gets_there(tmp_path, undo_log):
    (tmp_path / "run").mkdir()
    preloads = Preloads(tmp_path / "run", Nobody(), undo_log, "/mounted")
    preloads.begin([spec("a")])
    assert preloads.environment("a", "") == {"LD_PRELOAD": "/mounted/io.so", PAGE: "/mounted/a.page"}
    modes = [path.stat().st_mode & 0o777 for path in (preloads.folder / "a.page", preloads.folder,
                                                      preloads.folder.parent)]
    assert modes == [0o666, 0o755, 0o700]


def test_the_pages_are_gone_when_the_run_is_over(preloads, tmp_path):
    assert os.path.exists(preloads.environment("a", "")[PAGE])
    preloads.end()
    preloads.end()
    assert not list((tmp_path / "run").rglob("*.page"))
