"""`docker compose up` alone gives a cluster that a person can poke, with both generations of Compose."""

import json
import os
import secrets
import subprocess
import time
import urllib.request

import pytest

from diloco_chaos.harness.links.client import Links
from diloco_chaos.harness.links.toxic import Toxic
from diloco_chaos.harness.places.compose.compose_file import find
from diloco_chaos.harness.places.local.link_server import free_port

WITHIN_S = 90


class ByHand:
    """A cluster that was started by hand, under a name and ports of its own."""

    def __init__(self, command):
        self.api, self.port = free_port(), free_port()
        self._command = [*command, "-p", f"byhand{secrets.token_hex(3)}", "-f", str(find())]
        self._environment = os.environ | {"DILOCO_CHAOS_API_PORT": str(self.api),
                                          "DILOCO_CHAOS_STATUS_PORT": str(self.port)}

    def __call__(self, *arguments):
        done = subprocess.run([*self._command, *arguments], env=self._environment, capture_output=True, text=True,
                              check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def ask(self, question):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/{question}", timeout=5) as reply:
            return json.loads(reply.read())

    def until(self, holds):
        end = time.monotonic() + WITHIN_S
        while time.monotonic() < end:
            try:
                status = self.ask("status")
                if holds(status):
                    return status
            except OSError:
                pass  # nobody answers yet
            time.sleep(0.2)
        raise AssertionError(f"not within {WITHIN_S} s; logs: {self('logs', '--tail', '5')}")


@pytest.fixture
def cluster(compose):
    by_hand = ByHand(compose)
    try:
        by_hand("up", "--detach", "--no-build")
        yield by_hand
    finally:
        by_hand("down", "--volumes", "--timeout", "2")


def test_a_cluster_trains_tells_how_it_is_and_loses_nothing_but_the_learner_that_is_killed(cluster):
    cluster.until(lambda status: status["steady"])
    assert cluster.ask("health") == {"healthy": True}
    assert "gave" in cluster("logs", "--tail", "50", "learner-1")
    links = Links(f"127.0.0.1:{cluster.api}")
    assert all(links.enabled(link) for link in ("learner-1", "learner-2", "learner-3", "learner-4", "status"))

    cluster("kill", "learner-2")
    lost = cluster.until(lambda status: not status["learners"]["learner-2"]["connected"])
    cluster.until(lambda status: status["step"] > lost["step"] + 5)  # the others train on
    cluster("start", "learner-2")
    back = cluster.until(lambda status: status["learners"]["learner-2"]["connected"])
    assert back["learners"]["learner-2"]["incarnation"] == 1

    links.add("learner-3", Toxic("timeout", "upstream", {"timeout": 0}, name="cut"))
    cluster.until(lambda status: not status["learners"]["learner-3"]["connected"])
    links.remove("learner-3", "cut")
    cluster.until(lambda status: status["learners"]["learner-3"]["connected"])


def test_nothing_is_published_beyond_loopback_and_nodes_can_write_nowhere_but_their_volume(cluster):
    assert "0.0.0.0:" not in cluster("ps")
    cluster.until(lambda status: status["learners"])
    told = cluster("exec", "-T", "syncer", "sh", "-c",
                   "id -u; touch /app/x 2>&1 || true; touch /run/diloco-chaos/x && echo written")
    assert told.splitlines()[0] == "10001"
    assert "Read-only file system" in told
    assert "written" in told
