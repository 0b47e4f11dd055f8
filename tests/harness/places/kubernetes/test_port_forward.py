"""Connections through the API server: a broken one ends quietly, and nothing of this process is changed for it."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from types import SimpleNamespace

import pytest
from kubernetes.client import ApiClient, Configuration, CoreV1Api
from kubernetes.client.exceptions import ApiException
from kubernetes.stream import ws_client
from websocket import ABNF, WebSocketException

from diloco_chaos.harness.places.kubernetes import port_forward

PORT, WITHIN_S = 7000, 5.0


class Websocket:
    """One end of a pair of sockets, as far as a port forward uses a websocket: a packet is a frame."""

    def __init__(self):
        self.sock, self.api_server = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.connected = True
        self.broken_by = None

    def fileno(self):
        return self.sock.fileno()

    def recv_data_frame(self, _control):
        data = self.sock.recv(1 << 16)
        if self.broken_by is not None:
            raise self.broken_by
        return ABNF.OPCODE_BINARY, SimpleNamespace(data=data)

    def shutdown(self):
        self.connected = False
        self.sock.close()

    close = shutdown


@pytest.fixture
def websocket(monkeypatch):
    made = Websocket()
    monkeypatch.setattr(ws_client, "create_websocket", lambda _configuration, _url, _headers: made)
    yield made
    made.api_server.close()


@pytest.fixture
def raised(monkeypatch):
    """What threads raised and did not catch."""
    found = []
    monkeypatch.setattr(threading, "excepthook", found.append)
    return found


def connection():
    method = CoreV1Api(ApiClient(Configuration(host="http://127.0.0.1:1"))).connect_get_namespaced_pod_portforward
    made = port_forward.connection(method, "training", "learner-1", PORT, WITHIN_S)
    made.settimeout(WITHIN_S)
    return made


def joined():
    for thread in threading.enumerate():
        if thread.name.startswith("Kubernetes port forward proxy"):
            thread.join(WITHIN_S)
            assert not thread.is_alive()


def unmasked(frame):
    """The payload of a short websocket frame (RFC 6455, 5.2)."""
    length, mask = frame[1] & 0x7F, frame[2:6]
    return ABNF.mask(mask, frame[6:6 + length])


def test_bytes_are_carried_both_ways(websocket, raised):
    with connection() as ours:
        for channel in (0, 1):  # what the API server begins each with
            websocket.api_server.sendall(bytes([channel]) + PORT.to_bytes(2, "little"))
        websocket.api_server.sendall(b"\x00answer")
        assert ours.recv(10) == b"answer"
        ours.sendall(b"ask")
        assert unmasked(websocket.api_server.recv(100)) == b"\x00ask"
    joined()
    assert not raised


@pytest.mark.parametrize("error", [WebSocketException("broken"), OSError("reset"), RuntimeError("odd frame")])
def test_a_broken_connection_ends_quietly_and_its_end_is_noticed(websocket, raised, error):
    with connection() as ours:
        websocket.broken_by = error
        websocket.api_server.sendall(b"anything")
        assert ours.recv(10) == b""
    joined()
    assert not raised
    assert websocket.sock.fileno() == -1


def test_other_threads_still_tell_of_what_they_raise(websocket, raised):
    with connection():
        thread = threading.Thread(target=lambda: 1 / 0)
        thread.start()
        thread.join()
    joined()
    assert [what.exc_type for what in raised] == [ZeroDivisionError]


def test_no_connection_is_told_as_the_client_tells_it(monkeypatch):
    def refused(_configuration, _url, _headers):
        raise WebSocketException("Handshake status 403 Forbidden")
    monkeypatch.setattr(ws_client, "create_websocket", refused)
    with pytest.raises(ApiException, match="Handshake status 403"):
        connection()


def test_importing_it_changes_nothing_of_this_process():
    program = ("import sys, threading; before = threading.excepthook, sys.excepthook\n"
               "import diloco_chaos.harness.places.kubernetes.api\n"
               "assert (threading.excepthook, sys.excepthook) == before")
    subprocess.run([sys.executable, "-c", program], check=True)
