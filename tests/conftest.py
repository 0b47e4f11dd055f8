"""What tests of all parts share: a place of their own for undo logs, and processes that end with the test."""

import gc
import os
import subprocess
from functools import partial
from itertools import count

import pytest
from hypothesis import HealthCheck, settings

from diloco_chaos.harness.base.gc_paused import gc_paused
from diloco_chaos.harness.base.processes import TOKEN
from engines import refuse
from judging import judged_in

# No verdict depends on how busy the machine is; what `CI` chooses beside that stays.
settings.register_profile("unhurried", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """What is collected and imported stays to the end: no garbage collection looks through it, now or later."""
    with gc_paused():
        found = yield
        gc.freeze()
    return found


@pytest.fixture(scope="session")
def states(tmp_path_factory):
    """Folders that nobody has had; whoever needs one makes it."""
    return map(tmp_path_factory.mktemp("states").joinpath, map(str, count()))


@pytest.fixture(autouse=True)
def own_undo_logs(states, monkeypatch):
    """No test sees the undo logs of whoever runs it."""
    monkeypatch.setenv("XDG_STATE_HOME", str(next(states)))


@pytest.fixture
def start():
    """start(*argv, token) -> a process (one that sleeps, if nothing is said), ended at the end whatever it carries."""
    started = []

    def run(*argv, token=None):
        environment = {name: value for name, value in os.environ.items() if name != TOKEN}
        process = subprocess.Popen(argv or ["sleep", "60"], env=environment | ({TOKEN: token} if token else {}))
        started.append(process)
        while not _environment(process.pid):  # between its exec and its beginning a process shows none
            pass
        return process
    yield run
    for process in started:
        process.kill()
        process.wait()


def _environment(pid):
    with open(f"/proc/{pid}/environ", "rb") as file:
        return file.read()


@pytest.fixture(scope="session")
def engine_there():
    """Without an engine and its images these tests are skipped; with DILOCO_CHAOS_REQUIRE_ENGINE set they fail."""
    from diloco_chaos.harness.places.base import ClusterError
    from diloco_chaos.harness.places.compose.readiness import must_be_ready
    try:
        must_be_ready()
    except ClusterError as error:
        refuse(str(error))


@pytest.fixture
def judged(tmp_path):
    """Run a scenario's text: (exit code, check -> verdict, what was printed, on lines as long as they are)."""
    return partial(judged_in, tmp_path)
