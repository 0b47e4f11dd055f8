"""Connections through the API server: a broken one ends quietly, and nothing of this process is changed for it."""

from __future__ import annotations

import base64
import hashlib
import re
import socket
import subprocess
import sys
import threading

import pytest
from kubernetes.client import ApiClient, Configuration, CoreV1Api
from kubernetes.client.exceptions import ApiException

from diloco_chaos.harness.places.kubernetes import port_forward

PORT, WITHIN_S = 7000, 5.0
DATA, ERROR = 0, 1
"""Channels of the port."""


class ApiServer:
    """As much of one as a port forward needs: a websocket (RFC 6455) whose frames begin with a channel."""

    def __init__(self):
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self.asked = ""
        self.status = "101 Switching Protocols"
        self._accepting = threading.Thread(target=self._accept)
        self._accepting.start()

    def _accept(self):
        self._socket, _ = self._listening.accept()
        self._socket.settimeout(WITHIN_S)
        while "\r\n\r\n" not in self.asked:
            self.asked += self._socket.recv(1 << 16).decode()
        [key] = re.findall(r"(?i)sec-websocket-key: (\S+)", self.asked)
        accept = base64.b64encode(hashlib.sha1(f"{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11".encode()).digest()).decode()
        self._socket.sendall((f"HTTP/1.1 {self.status}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                              f"Sec-WebSocket-Accept: {accept}\r\nSec-WebSocket-Protocol: v4.channel.k8s.io\r\n\r\n"
                              ).encode())
        for channel in (DATA, ERROR) if self.status.startswith("101") else ():
            self.send(channel, PORT.to_bytes(2, "little"))

    def send(self, channel, data):
        self._socket.sendall(bytes([0x82, 1 + len(data), channel]) + data)

    def received(self):
        """What a frame of the client's says."""
        self._accepting.join(WITHIN_S)
        frame = self._socket.recv(1 << 16)
        mask, masked = frame[2:6], frame[6:6 + (frame[1] & 0x7F)]
        return bytes(byte ^ mask[index % 4] for index, byte in enumerate(masked))

    def breaks(self, how):
        self._accepting.join(WITHIN_S)
        if how == "reset":
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            self._socket.close()
        else:
            self._socket.sendall(how)

    def close(self):
        self._accepting.join(WITHIN_S)
        self._socket.close()
        self._listening.close()


@pytest.fixture
def api_server():
    made = ApiServer()
    yield made
    made.close()


@pytest.fixture
def raised(monkeypatch):
    """What threads raised and did not catch."""
    found = []
    monkeypatch.setattr(threading, "excepthook", found.append)
    return found


def connection(api_server):
    method = CoreV1Api(ApiClient(Configuration(host=api_server.url))).connect_get_namespaced_pod_portforward
    made = port_forward.connection(method, "training", "learner-1", PORT, WITHIN_S)
    made.settimeout(WITHIN_S)
    return made


def joined():
    for thread in threading.enumerate():
        if thread.name.startswith("Kubernetes port forward proxy"):
            thread.join(WITHIN_S)
            assert not thread.is_alive()


def test_bytes_are_carried_both_ways_to_the_port_of_the_pod(api_server, raised):
    with connection(api_server) as ours:
        ours.sendall(b"ask")
        assert api_server.received() == bytes([DATA]) + b"ask"
        api_server.send(DATA, b"answer")
        assert ours.recv(10) == b"answer"
    joined()
    assert api_server.asked.startswith(f"GET /api/v1/namespaces/training/pods/learner-1/portforward?ports={PORT} ")
    assert not raised


@pytest.mark.parametrize("how", ["reset", b"\x82\x00", b"\x82\x03\x07ab", b"\x8f\x00"],
                         ids=["reset", "an empty frame", "a channel that there is not", "an unknown opcode"])
def test_a_broken_connection_ends_quietly_and_its_end_is_noticed(api_server, raised, how):
    with connection(api_server) as ours:
        api_server.breaks(how)
        assert ours.recv(10) == b""
    joined()
    assert not raised


def test_other_threads_still_tell_of_what_they_raise(api_server, raised):
    with connection(api_server):
        thread = threading.Thread(target=lambda: 1 / 0)
        thread.start()
        thread.join()
    joined()
    assert [what.exc_type for what in raised] == [ZeroDivisionError]


def test_no_connection_is_told_as_the_client_tells_it(api_server):
    api_server.status = "403 Forbidden"
    with pytest.raises(ApiException, match="Handshake status 403"):
        connection(api_server)


def test_importing_it_changes_nothing_of_this_process():
    program = ("import sys, threading; before = threading.excepthook, sys.excepthook\n"
               "import diloco_chaos.harness.places.kubernetes.api\n"
               "assert (threading.excepthook, sys.excepthook) == before")
    subprocess.run([sys.executable, "-c", program], check=True)
