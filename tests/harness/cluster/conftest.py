"""Nodes that are not ours: a small echo server and its callers, a line of Python each."""

import sys
import time

import pytest

from harness.cluster.base import NodeSpec
from harness.cluster.local import LocalCluster
from harness.ledger import Ledger, read

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
    """A folder, a ledger, a cluster in it, and what it recorded."""

    def __init__(self, path, **options):
        (path / "tape").mkdir()
        self.path, self.events = path, []
        self.ledger = Ledger(path / "ledger.jsonl", "c0ffee" * 4)
        self.cluster = LocalCluster(path, self.record, self.ledger, **options)

    def record(self, event, **fields):
        self.events.append((event, fields))

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
        return [undo.entry for undo in read(self.ledger.path).undos]


@pytest.fixture
def make_ground(tmp_path):
    made = []

    def make(**options):
        made.append(Ground(tmp_path, **options))
        return made[0]
    yield make
    for ground in made:
        ground.cluster.stop()
        ground.ledger.close()
        assert not (tmp_path / "ledger.jsonl").exists(), "something is owed after the cluster was stopped"


@pytest.fixture
def ground(make_ground):
    return make_ground()
