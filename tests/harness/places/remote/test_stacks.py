"""Where nodes on other machines stand when they hang, as their agents tell it."""

import os
import signal
import subprocess
import types
from unittest.mock import Mock

import pytest

from diloco_chaos.harness.places.kubernetes.site import KubernetesSite
from diloco_chaos.harness.places.remote import agent
from diloco_chaos.harness.places.remote.connection import AgentError
from diloco_chaos.harness.places.remote.run import RemoteRun
from diloco_chaos.harness.places.slurm.site import SlurmSite

LINES = ["pid 7  python train.py  (S)", "  kernel: futex_wait"]


def node(name, ask, reachable=True, alive=True):
    process = types.SimpleNamespace(name=f"{name}.0", reachable=reachable, agent=types.SimpleNamespace(ask=ask))
    return types.SimpleNamespace(name=name, number=0, alive=alive, process=process)


@pytest.mark.parametrize("site_of", [KubernetesSite, SlurmSite])
def test_what_agents_tell_is_kept_with_a_reason_for_what_they_do_not(site_of, tmp_path):
    broken = Mock(side_effect=AgentError("w-2: its agent can't do it"))
    remote, site = object.__new__(RemoteRun), object.__new__(site_of)
    remote._run, remote._nodes = tmp_path, (nodes := Mock())
    nodes.values.return_value = [node("w-1", Mock(return_value={"lines": LINES})), node("w-2", broken),
                                 node("w-3", None, reachable=False), node("w-4", None), node("w-5", None, alive=False)]
    site._remote, site.nodes = remote, nodes
    site.dump_stacks({"w-1", "w-2", "w-3", "w-5"})
    told = {file.stem: file.read_text().splitlines() for file in (tmp_path / "stacks").iterdir()}
    assert set(told) == {"w-1.0", "w-2.0", "w-3.0"}
    first, *lines = told["w-1.0"]
    assert first.startswith("frames of Python are not told: py-spy would need to trace processes on ")
    assert lines == LINES
    assert told["w-2.0"] == ["where it stands is not told: w-2: its agent can't do it"]
    assert told["w-3.0"][0].startswith("where it stands is not told: its agent did not answer in time")
    nodes.dump_stacks.assert_called_once_with({"w-1", "w-2", "w-3", "w-5"})


def test_an_agent_tells_a_process_and_what_it_has_started_and_nothing_of_one_that_is_gone():
    with subprocess.Popen(["sh", "-c", "echo there; sleep 600 & wait"], stdout=subprocess.PIPE,
                          start_new_session=True) as process:
        process.stdout.readline()
        own = object.__new__(agent.Agent)
        own._processes = Mock(pid=lambda name: process.pid)
        told, payload = own.do_stacks({"name": "worker.0"}, b"")
        named = [line for line in told["lines"] if line.startswith("pid ")]
        assert payload == b""
        assert named[0].startswith(f"pid {process.pid}  sh -c ")
        os.killpg(process.pid, signal.SIGKILL)
    assert agent._standing(process.pid) == []
