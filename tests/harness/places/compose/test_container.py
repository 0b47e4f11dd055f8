"""An incarnation in a container, with an engine that only notes what it is asked for."""

import types

import pytest
import requests
from docker.errors import APIError

from diloco_chaos.harness.places.compose import container as containers
from diloco_chaos.harness.places.compose.container import ContainerProcess, _status
from diloco_chaos.harness.places.compose.engine import EngineError


class Container:
    """Notes what is done to it."""

    def __init__(self):
        self.id, self.asked = "x" * 64, []
        self.attrs = {"HostConfig": {"CpuQuota": 100_000}, "State": {"Pid": 1}}

    def update(self, **limits):
        self.asked.append(limits["cpu_quota"])

    def reload(self):
        pass

    def logs(self):
        return b""


@pytest.fixture
def made(tmp_path, monkeypatch):
    """A node, its container, and a clock of the processor time that it has used."""
    used = {"seconds": 0.0}
    monkeypatch.setattr(containers, "children", lambda pid: [2])
    monkeypatch.setattr(containers, "cpu_seconds", lambda pid: used["seconds"])
    watch = types.SimpleNamespace(exits={}, out_of_memory=set(), meddled={})
    container = Container()
    node = ContainerProcess("worker", watch, tmp_path / "log", lambda: container, quota=100_000)
    assert node.container is container
    return node, container, used


def works(node, used, begin, seconds, processors):
    """The node uses so many processors for so long."""
    for second in range(begin, begin + seconds):
        node.sample(float(second))
        used["seconds"] += processors


def test_a_share_is_one_of_what_the_node_has_been_using(made):
    node, container, used = made
    works(node, used, 0, 6, 0.4)
    node.throttle(0.5, 0.0, 0)
    assert container.asked == [20_000]
    node.unthrottle()
    assert container.asked == [20_000, 100_000]


def test_without_a_history_a_share_is_one_of_a_whole_processor(made):
    node, container, _ = made
    node.throttle(0.25, 0.0, 0)
    assert container.asked == [25_000]


def test_the_time_in_which_a_node_was_held_back_is_no_measure_of_what_it_uses(made):
    node, container, used = made
    works(node, used, 0, 6, 0.8)
    node.throttle(0.25, 0.0, 0)
    works(node, used, 6, 60, 0.2)
    node.unthrottle()
    works(node, used, 66, 3, 0.8)
    node.throttle(0.25, 0.0, 0)
    assert container.asked[-1] in (20_000, 25_000), "or a straggler that is made one twice gets slower and slower"


def test_a_quota_is_never_less_than_the_kernel_takes(made):
    node, container, used = made
    works(node, used, 0, 6, 0.0)
    node.throttle(0.01, 0.0, 0)
    assert container.asked == [1000]


@pytest.mark.parametrize(("code", "status"), [(0, 0), (1, 1), (7, 7), (127, 127), (128, 128), (130, -2), (137, -9),
                                              (143, -15), (255, 255)])
def test_an_exit_code_tells_the_signal_as_a_shells_does(code, status):
    assert _status(code) == status


def test_an_engine_that_went_away_is_told_as_such_whatever_was_asked_of_it(made):
    node, container, _ = made

    def away():
        raise requests.ConnectionError("Connection aborted.", FileNotFoundError(2, "No such file or directory"))
    container.logs = away
    with pytest.raises(EngineError, match=r"read the log of worker: the Docker engine does not answer \(.*aborted"):
        node.over(False)


def refusing(node, container, status, explanation):
    """The engine answers this if a program is to be run in the container."""
    def refuse(_):
        raise APIError("refused", response=types.SimpleNamespace(status_code=status), explanation=explanation)
    container.exec_run = refuse
    return node


@pytest.mark.parametrize(("status", "explanation"), [
    (404, "No such container: 31"), (409, "container 31 is not running"),
    (500, "Container 31 is not running: Exited (153) Less than a second ago")])
def test_what_is_run_in_a_container_that_is_gone_has_no_output_and_no_success(made, status, explanation):
    node, container, _ = made
    assert refusing(node, container, status, explanation).execute("sh") == (1, "")


def test_another_error_of_the_engine_is_told(made):
    node, container, _ = made
    with pytest.raises(EngineError, match="run sh in worker: the engine says: out of inodes"):
        refusing(node, container, 500, "out of inodes").execute("sh")
