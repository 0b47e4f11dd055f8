"""What a node loses with its power, by what its processes wrote and did not sync."""

import os
import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest

from diloco_chaos.harness.places.base import NodeSpec
from diloco_chaos.harness.places.local.power_losses import PowerLosses
from diloco_chaos.harness.places.local.preloads import Preloads
from diloco_chaos.harness.record.undo_log import UndoLog
from diloco_chaos.harness.trainers.core.programs import Program

WRITE = "import os, sys\nos.write(os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT), b'x')"


class OneDead:
    """Nodes that are gone as soon as one is killed."""

    alive = True

    def __getitem__(self, node):
        return self

    def end(self, number, restart_after):
        assert (number, restart_after) == (signal.SIGKILL, 1.0)

    def wait_gone(self, node):
        self.alive = False


@pytest.fixture
def losing(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "work").mkdir()
    nodes, spec = OneDead(), NodeSpec("a", (), program=Program("x", cwd=f"{tmp_path}/work"),
                                      preloaded=frozenset({"lose_unsynced", "fail_calls"}))
    preloads = Preloads(tmp_path / "run", nodes, UndoLog(tmp_path / "undo-log", "0123456789abcdef" * 2))
    preloads.begin([spec])
    losses = PowerLosses(tmp_path / "run", preloads, nodes)
    losses.begin([spec])
    return SimpleNamespace(kill_unsynced=losses.kill_unsynced, environment=preloads.environment)


def test_what_was_not_synced_is_lost_in_the_runs_folder_and_where_the_node_runs(losing, tmp_path):
    names = [tmp_path / "run/x", tmp_path / "work/y", tmp_path / "z", tmp_path / "work/__pycache__/p"]
    names[3].parent.mkdir()
    for name in names:
        subprocess.run([sys.executable, "-c", WRITE, name], env=os.environ | losing.environment("a", ""), check=True)
    loss = losing.kill_unsynced("a", 1.0, "")
    assert sorted(loss.lost) == [(str(names[1]), 1), ("x", 1)]
    assert [name.stat().st_size for name in names] == [0, 0, 1, 1]


def test_a_pattern_means_files_anywhere(losing, tmp_path):
    for name in ("z.pt", "z.bin"):
        subprocess.run([sys.executable, "-c", WRITE, tmp_path / name], env=os.environ | losing.environment("a", ""),
                       check=True)
    assert losing.kill_unsynced("a", 1.0, "*.pt").lost == ((f"{tmp_path}/z.pt", 1),)
    assert losing.kill_unsynced("a", 1.0, "*").why == "it was not there"


def test_of_a_node_that_loads_nothing_no_loss_is_known(losing):
    assert losing.kill_unsynced("a", 1.0, "*").why.startswith("nothing was preloaded into it: ")
