"""Nodes that are not ours: a small echo server and its callers, a line of Python each."""

import os
import secrets
import socket
import sys
import time

import pytest

from diloco_chaos.harness.places.base import ClusterError, NodeSpec
from diloco_chaos.harness.places.cluster import Cluster
from diloco_chaos.harness.places.compose import compose_cli
from diloco_chaos.harness.places.compose.engine import DockerEngine, run_label
from diloco_chaos.harness.places.compose.readiness import must_be_ready
from diloco_chaos.harness.places.compose.site import ComposeSite
from diloco_chaos.harness.places.local.site import LocalSite
from diloco_chaos.harness.record.undo_log import UndoLog, read

HUB = """
import json, socket, sys, time
run, port = sys.argv[1], int(sys.argv[2])
server = socket.create_server(("127.0.0.1", port))
with open(f"{run}/tape/hub.{sys.argv[3]}.jsonl", "a") as tape:
    tape.write(json.dumps({"t": 0, "node": "hub", "inc": int(sys.argv[3]), "event": "listening",
                           "port": server.getsockname()[1]}) + chr(10))
while True:
    link, _ = server.accept()
    link.sendall(b"hello")
    link.close()
"""
WORKER = """
import sys, time
count = 0
while True:
    time.sleep(0.002)
    count += 1
    with open(sys.argv[1], "w") as file:
        file.write(str(count))
"""


class Ground:
    """A folder, an undo log, a cluster in it, and what it recorded."""

    def __init__(self, path, **options):
        (path / "tape").mkdir()
        self.path, self.events = path, []
        self.undo_log = UndoLog(path / "undo_log.jsonl", "c0ffee" * 4)
        self.site = LocalSite(path, self.record, self.undo_log, **options)
        self.cluster = Cluster(self.site)

    def record(self, event):
        self.events.append((event.event, dict(event.payload())))

    def hub(self, source=HUB):
        return NodeSpec("hub", (sys.executable, "-c", source, str(self.path), "{listen}", "{incarnation}"),
                        listens=True, state="state")

    def worker(self, source=WORKER):
        return NodeSpec("worker", (sys.executable, "-c", source, str(self.path / "count"), "{incarnation}"),
                        connects_to="hub")

    def start(self, source=WORKER):
        self.cluster.start([self.hub(), self.worker(source)])
        return self.cluster

    def until(self, condition, seconds=15):
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, "it never happened"
            self.cluster.poll()
            time.sleep(0.01)

    def count(self):
        try:
            return int((self.path / "count").read_text() or 0)
        except FileNotFoundError:
            return 0

    def exits(self):
        return [(fields["incarnation"], fields["status"], fields["killed"])
                for event, fields in self.events if event == "exit"]

    def owed(self):
        return [undo.entry for undo in read(self.undo_log.path).undos]


@pytest.fixture
def make_ground(tmp_path):
    made = []

    def make(**options):
        made.append(Ground(tmp_path, **options))
        return made[0]
    yield make
    for ground in made:
        ground.cluster.stop()
        ground.undo_log.close()
        assert not (tmp_path / "undo_log.jsonl").exists(), "something is owed after the cluster was stopped"


@pytest.fixture
def ground(make_ground):
    return make_ground()


# -- in containers -----------------------------------------------------------------------------------------------------

CONTAINED_HUB = """
import json, socket, sys
run, host, port, inc = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
server = socket.create_server((host, port))
with open(f"{run}/tape/hub.{inc}.jsonl", "a") as tape:
    tape.write(json.dumps({"t": 0, "node": "hub", "inc": inc, "event": "listening", "port": port}) + chr(10))
print("listening", flush=True)
while True:
    link, _ = server.accept()
    link.sendall(f"hello {inc}".encode())
    link.close()
"""
CONTAINED_WORKER = """
import os, signal, socket, sys, time
folder, name, inc, hub = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
ballast = b"x" * (64 << 20)  # the largest of its container, whatever else runs there
count = 0
def write(what, text):
    with open(f"{folder}/{what}.partial", "w") as file:
        file.write(str(text))
    os.replace(f"{folder}/{what}.partial", f"{folder}/{what}")
while True:
    time.sleep(0.002)
    count += 1
    write(f"{name}.{inc}.count", count)
    try:
        with open(f"{folder}/{name}.{inc}.order") as file:
            order = file.read()
    except FileNotFoundError:
        continue
    os.unlink(f"{folder}/{name}.{inc}.order")
    exec(order)
"""


class ContainedGround:
    """A folder, an undo log, a cluster of containers, and what it recorded."""

    def __init__(self, folder, engine):
        self.path, self.events, self.engine, self.stopped = folder, [], engine, False
        folder.mkdir(mode=0o755)
        for name in ("tape", "state"):
            (folder / name).mkdir()
        self.token = secrets.token_hex(16)
        self.run = run_label(self.token)
        self.undo_log = UndoLog(folder.parent / f"{folder.name}.jsonl", self.token)
        self.site = ComposeSite(folder, self.record, self.undo_log)
        self.cluster = Cluster(self.site)

    def record(self, event):
        self.events.append((event.event, dict(event.payload())))

    def hub(self, source=CONTAINED_HUB, **more):
        return NodeSpec("hub", ("{python}", "-c", source, str(self.path), "{host}", "{listen}", "{incarnation}"),
                        listens=True, **more)

    def worker(self, name="worker", source=CONTAINED_WORKER):
        return NodeSpec(name, ("{python}", "-c", source, str(self.path / "state"), name, "{incarnation}", "{connect}"),
                        connects_to="hub", state="state")

    def start(self, *nodes):
        self.cluster.start(nodes or [self.hub(), self.worker()])
        return self.cluster

    def until(self, condition, seconds=30, poll=True):
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, "it never happened"
            if poll:
                self.cluster.poll()
            time.sleep(0.01)

    def number(self, name="worker"):
        return self.cluster.states()[name].incarnation

    def count(self, name="worker", number=None):
        number = self.number(name) if number is None else number
        path = self.path / "state" / f"{name}.{number}.count"
        return int(path.read_text()) if path.exists() else 0

    def runs(self, name="worker", number=None):
        """Wait until it is seen to make progress."""
        before = self.count(name, number)
        self.until(lambda: self.count(name, number) > before)

    def order(self, source, name="worker", number=None):
        """Have a worker run a line of Python."""
        number = self.number(name) if number is None else number
        path = self.path / "state" / f"{name}.{number}.order"
        unfinished = path.with_suffix(".unfinished")
        unfinished.write_text(source)
        unfinished.replace(path)
        self.until(lambda: not path.exists(), poll=False)

    def pid(self, name="worker"):
        self.until(lambda: self.cluster.states()[name].pid)
        return self.cluster.states()[name].pid

    def exits(self, name="worker"):
        return [fields for event, fields in self.events if event == "exit" and fields["target"] == name]

    def comes_back(self, name, after):
        """Wait for the incarnation after this one, and until it works."""
        self.until(lambda: self.number(name) == after + 1)
        self.pid(name)
        if name != "hub":
            self.runs(name)

    def container(self, name="worker", number=None):
        if number is None:
            self.pid(name)  # its container is made in the background
            number = self.number(name)
        return self.engine.client.containers.get(f"{self.path.name}-{name}-{number}")

    def reach(self, link="worker"):
        host, port = self.cluster.address(link).split(":")
        with socket.create_connection((host, int(port)), 5) as connection:
            return connection.recv(20)

    def reached(self, link="worker"):
        try:
            return self.reach(link).startswith(b"hello")
        except OSError:
            return False

    def owed(self):
        found = read(self.undo_log.path)
        return [undo.entry for undo in found.undos] if found else []

    def stop(self):
        self.stopped = True
        self.cluster.stop()

    def end(self):
        try:
            if not self.stopped:
                self.cluster.stop()
        finally:
            self.engine.remove(self.run)
            self.undo_log.close()


@pytest.fixture(scope="session")
def docker_compose():
    """Compose reads compose files. Without it such tests are skipped; with DILOCO_CHAOS_REQUIRE_ENGINE set they fail
    instead."""
    if compose_cli.version() < compose_cli.OLDEST:
        refuse(compose_cli.NEEDED)


@pytest.fixture(scope="session")
def engine():
    """A connection to this machine's engine. Without one such tests are skipped; with DILOCO_CHAOS_REQUIRE_ENGINE set
    they fail instead."""
    try:
        must_be_ready()
        found = DockerEngine()
    except ClusterError as error:
        refuse(f"no engine for containers: {error}")
    yield found
    found.close()


def refuse(reason):
    if os.environ.get("DILOCO_CHAOS_REQUIRE_ENGINE"):
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


@pytest.fixture
def contained(engine, tmp_path_factory):
    """contained() -> a new ground; everything of it is gone after the test."""
    made = []

    def make(name=""):
        folder = tmp_path_factory.mktemp("ground") / (name or f"test-{secrets.token_hex(4)}")
        made.append(ContainedGround(folder, engine))
        return made[-1]
    yield make
    for ground in made:
        ground.end()


@pytest.fixture(scope="module")
def shared_ground(engine, tmp_path_factory):
    """One cluster for many tests: a hub with a small disk, and a worker."""
    ground = ContainedGround(tmp_path_factory.mktemp("ground") / f"test-{secrets.token_hex(4)}", engine)
    try:
        ground.start(ground.hub(state="small", disk=1 << 20), ground.worker())
        ground.runs()
        yield ground
    finally:
        ground.end()
    assert engine.labelled(ground.run) == []
    assert not ground.undo_log.path.exists(), "something is owed after the cluster was stopped"
