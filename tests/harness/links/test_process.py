"""The embedded server as a process: how it starts, tells its address and ends."""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from diloco_chaos.harness.links.client import Links

COMMAND = [sys.executable, "-m", "diloco_chaos.harness.links.server"]
Settled = Callable[[Callable[[], Any]], Any]


def answers(address: str) -> bool:
    host, _, port = address.rpartition(":")
    with contextlib.suppress(OSError), socket.create_connection((host, int(port)), 20):
        return True
    return False


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_cleanly_on_a_signal_and_drops_its_connections(
        tmp_path: Path, settled: Settled, listener: socket.socket, number: signal.Signals) -> None:
    address_file = tmp_path / "address"
    process = subprocess.Popen([*COMMAND, "--port", "0", "--address-file", str(address_file)],
                               stderr=subprocess.PIPE, text=True)
    try:
        settled(address_file.exists)
        links = Links(address_file.read_text(), timeout_s=20)
        host, _, port = links.create("a", f"127.0.0.1:{listener.getsockname()[1]}").rpartition(":")
        with socket.create_connection((host, int(port)), 20) as client, listener.accept()[0]:
            process.send_signal(number)
            _, errors = process.communicate(timeout=20)
            assert client.recv(1) == b""
    finally:
        process.kill()
        process.wait()
    assert (process.returncode, errors) == (0, "")
    assert list(tmp_path.iterdir()) == [address_file]


def test_a_port_in_use_is_one_clear_line(embedded: Any) -> None:
    port = embedded.address.rpartition(":")[2]
    done = subprocess.run([*COMMAND, "--port", port], capture_output=True, text=True, timeout=20)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert f"127.0.0.1:{port}" in done.stderr
    assert "in use" in done.stderr


@pytest.mark.parametrize("port", ["-1", "65536", "http"])
def test_what_is_no_port_is_refused(port: str) -> None:
    done = subprocess.run([*COMMAND, f"--port={port}"], capture_output=True, text=True, timeout=20)
    assert done.returncode == 2
    assert "is not a port" in done.stderr


def test_it_dies_with_its_parent(tmp_path: Path, settled: Settled) -> None:
    address_file = tmp_path / "address"
    start = "import os, subprocess, sys; subprocess.call([*sys.argv[1:], '--parent', str(os.getpid())])"
    parent = subprocess.Popen([sys.executable, "-c", start, *COMMAND, "--port", "0",
                               "--address-file", str(address_file)])
    try:
        settled(address_file.exists)
        assert answers(address_file.read_text())
    finally:
        parent.kill()
        parent.wait()
    settled(lambda: not answers(address_file.read_text()))


def test_it_starts_without_heavy_imports() -> None:
    check = ("import sys, diloco_chaos.harness.links.server;"
             "print({'requests', 'pydantic', 'torch', 'toxiproxy'} & set(sys.modules))")
    assert subprocess.run([sys.executable, "-c", check], capture_output=True, text=True).stdout == "set()\n"
