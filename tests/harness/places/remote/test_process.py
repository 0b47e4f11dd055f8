"""Incarnations that another machine's agent starts."""

import threading
from unittest.mock import Mock

import pytest

from diloco_chaos.harness.places.base import ClusterError
from diloco_chaos.harness.places.remote.hosts import Host
from diloco_chaos.harness.places.remote.process import RemoteProcess


@pytest.fixture
def host():
    made = Host("pod-1", Mock())
    yield made
    made.close()


def process_on(host, start=lambda _: None):
    return RemoteProcess("worker.0", host, Mock(), start)


def test_who_is_not_started_in_time_is_told_with_what_to_do(host, monkeypatch):
    monkeypatch.setattr("diloco_chaos.harness.places.remote.process._REASON_S", 0.0)
    goes_on = threading.Event()
    host.soon(goes_on.wait)
    with pytest.raises(ClusterError, match=r"worker: pod-1 has not started it within 0.01 s. Raise `start_within`"):
        process_on(host).wait_started(0.01)
    goes_on.set()


def test_what_its_host_waits_for_in_vain_is_told_first_where_both_wait_as_long(host):
    def provide():
        threading.Event().wait(0.1)
        raise ClusterError("worker: no room")
    host.soon(provide)
    with pytest.raises(ClusterError, match="no room"):
        process_on(host).wait_started(0.0)
