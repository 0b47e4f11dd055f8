"""Where processes in containers stand that hang: this machine's /proc shows them, if the engine is on this machine."""

import os
import subprocess
import sys
import types
from unittest.mock import Mock

import pytest

from diloco_chaos.harness.base.processes import TOKEN, children, identity
from diloco_chaos.harness.places.compose.container import ContainerProcess
from diloco_chaos.harness.places.compose.engine import EngineError
from diloco_chaos.harness.places.compose.site import ComposeSite

WAITS = "import threading; print('there', flush=True); threading.Event().wait()"


@pytest.fixture
def init():
    """A process that starts a node's, as the init of a container does; both wait for ever."""
    process = subprocess.Popen(["sh", "-c", f'{sys.executable} -c "{WAITS}" & wait'], stdout=subprocess.PIPE,
                               env={**os.environ, TOKEN: "ours"}, start_new_session=True)
    process.stdout.readline()
    yield process
    os.killpg(process.pid, 9)
    process.communicate()


def container_of(pid, tmp_path, reload=lambda: None):
    """A node whose container, of a made-up engine, has this process as its init."""
    made = types.SimpleNamespace(id="x", attrs={"State": {"Pid": pid}}, reload=reload, logs=lambda: b"")
    process = ContainerProcess("worker", types.SimpleNamespace(exits={}, out_of_memory=set()), tmp_path / "log",
                               lambda: made)
    assert process.container is made
    return process


def dumped(process, tmp_path, token="ours"):
    """What the end of a run keeps of one node that hangs, and of none that was not asked for."""
    site = object.__new__(ComposeSite)
    nodes = Mock()
    nodes.values.return_value = [types.SimpleNamespace(name=name, number=0, alive=True, process=process)
                                 for name in ("worker", "other")]
    site.nodes, site._run, site._token = nodes, tmp_path, token
    site.dump_stacks({"worker"})
    nodes.dump_stacks.assert_called_once_with({"worker"})
    (file,) = (tmp_path / "stacks").iterdir()
    assert file.name == "worker.0.txt"
    return file.read_text()


def test_the_processes_of_a_container_are_told_without_its_init(init, tmp_path):
    process = container_of(init.pid, tmp_path)
    (node,) = children(init.pid)
    assert process.all_of_it() == [identity(node)]
    text = dumped(process, tmp_path)
    assert f"pid {node}  {sys.executable} -c " in text
    assert "kernel" in text
    assert f"pid {init.pid} " not in text


@pytest.mark.parametrize("token", ["another run's"])
def test_processes_of_another_run_are_never_looked_at(init, tmp_path, token):
    text = dumped(container_of(init.pid, tmp_path), tmp_path, token)
    assert text.startswith("where it stands is not told: its container's processes can't be looked at in this ")
    assert "pid " not in text


def test_what_this_machine_does_not_show_gets_a_sentence_with_what_would_bring_it(tmp_path):
    def away():
        raise EngineError("the engine does not answer")
    for folder, process in (("elsewhere", container_of(0, tmp_path)), ("away", container_of(0, tmp_path, away))):
        (tmp_path / folder).mkdir()
        assert "Run on the engine's own machine, as root or as the user" in dumped(process, tmp_path / folder)
