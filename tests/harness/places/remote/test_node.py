"""Incarnations that another machine's agent starts."""

import threading
from unittest.mock import Mock

import pytest

from diloco_chaos.harness.places.base import ClusterError, NodeSpec
from diloco_chaos.harness.places.remote.node import Host, RemoteNode
from diloco_chaos.harness.record.undo_log import UndoLog


@pytest.fixture
def host():
    made = Host("pod-1", Mock())
    yield made
    made.close()


def node_on(host, path, start=lambda _: None):
    return RemoteNode(NodeSpec("worker", ()), 0, UndoLog(path / "undo_log.jsonl", "c0ffee" * 4), host, start)


def test_who_is_not_started_in_time_is_told_with_what_to_do(host, tmp_path, monkeypatch):
    monkeypatch.setattr("diloco_chaos.harness.places.remote.node._REASON_S", 0.0)
    goes_on = threading.Event()
    host.soon(goes_on.wait)
    with pytest.raises(ClusterError, match=r"worker: pod-1 has not started it within 0.01 s. Raise `start_within`"):
        node_on(host, tmp_path).wait_started(0.01)
    goes_on.set()


def test_what_its_host_waits_for_in_vain_is_told_first_where_both_wait_as_long(host, tmp_path):
    def provide():
        threading.Event().wait(0.1)
        raise ClusterError("worker: no room")
    host.soon(provide)
    with pytest.raises(ClusterError, match="no room"):
        node_on(host, tmp_path).wait_started(0.0)
