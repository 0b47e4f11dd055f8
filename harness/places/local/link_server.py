"""The server of a local cluster's links: the embedded one, or the real toxiproxy-server. Both speak the same API."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from secrets import randbelow

from diloco_chaos.harness.base.parent_death import tied
from diloco_chaos.harness.base.processes import Identity, identity
from diloco_chaos.harness.links.client import LinkError, Links
from diloco_chaos.harness.places.base import ClusterError

VARIABLE = "DILOCO_CHAOS_TOXIPROXY"
"""Environment variable that names the real server's binary."""
START_TIMEOUT_S = 30.0
_TRIES = 3
_GIVEN = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LEAST_PORT, _DRAWS = 10_000, 50
Spawn = Callable[[Sequence[str]], "subprocess.Popen[bytes]"]


def real_server(path: str = "") -> str:
    """Return the path of the real server's binary: `path`, the one that DILOCO_CHAOS_TOXIPROXY names, or the one on the
    PATH.

    Raises:
        ClusterError: there is none.
    """
    named = path or os.environ.get(VARIABLE, "")
    binary = shutil.which(named or "toxiproxy-server")
    if binary is None:
        what = f"{named}: no such program" if named else "toxiproxy-server is not on the PATH"
        raise ClusterError(f"{what}; name it with --toxiproxy PATH or in {VARIABLE}, or leave --toxiproxy out for the "
                           f"embedded one. To build it: go install github.com/Shopify/toxiproxy/v2/cmd/server@v2.12.0")
    return binary


class LocalLinkServer:
    """A running link server; it ends with the process that started it, whatever becomes of that one."""

    def __init__(self, run: Path, spawn: Spawn, last_lines: Callable[[], str], *, binary: str = "",
                 port: int = 0, listen_on: str = "") -> None:
        """`spawn` starts a program with the run's token and log. `binary`: the real server's, empty for the embedded
        one. `port`: of the API, 0 for any. `listen_on`: an IP that links may listen on besides loopback.

        Raises:
            ClusterError: it did not come up; with the end of its log.
        """
        self._run, self._spawn, self._last_lines, self._binary = run, spawn, last_lines, binary
        self._listen_on = listen_on
        self.process, self.api = self._real(port) if binary else self._embedded(port)
        identified = identity(self.process.pid)
        assert identified is not None, "it answered, so it lives"
        self.identity: Identity = identified
        self.links = Links(self.api)

    def _embedded(self, port: int) -> tuple[subprocess.Popen[bytes], str]:
        address = self._run / "links.address"
        process = self._spawn([sys.executable, "-m", "diloco_chaos.harness.links.server", "--port", str(port),
                               "--address-file", str(address), "--parent", str(os.getpid()),
                               "--listen-on", self._listen_on])
        self._wait(process, address.exists)
        return process, address.read_text().strip()

    def _real(self, port: int) -> tuple[subprocess.Popen[bytes], str]:
        """It can't choose a free port and tell: choose one, and again where another program was quicker."""
        for _ in range(_TRIES):
            chosen = port or free_port()
            process = self._spawn(tied([self._binary, "-host", "127.0.0.1", "-port", str(chosen)]))
            api = f"127.0.0.1:{chosen}"
            try:
                self._wait(process, partial(_serves, process.pid, chosen))
            except ClusterError:
                if port or process.poll() is None:
                    raise
                continue
            return process, api
        raise ClusterError(f"{self._binary} did not start:\n{self._last_lines()}")

    def _wait(self, process: subprocess.Popen[bytes], ready: Callable[[], bool]) -> None:
        until = time.monotonic() + START_TIMEOUT_S
        while not ready():
            if process.poll() is not None:
                raise ClusterError(f"the link server did not start:\n{self._last_lines()}")
            if time.monotonic() > until:
                raise ClusterError(f"the link server did not answer within {START_TIMEOUT_S:.0f} s")
            time.sleep(0.01)
        if process.poll() is not None:  # then it was somebody else who answered
            raise ClusterError(f"the link server did not start:\n{self._last_lines()}")


def free_port() -> int:
    """Return a port on loopback that is free now, and below those that the kernel gives to outgoing connections: one of
    these may be taken by the time its node listens."""
    with suppress(OSError, ValueError, LookupError):
        above = int(_GIVEN.read_text().split()[0])
        for _ in range(_DRAWS if above > _LEAST_PORT else 0):
            port = _LEAST_PORT + randbelow(above - _LEAST_PORT)
            with suppress(OSError), socket.create_server(("127.0.0.1", port)):
                return port
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def _serves(pid: int, port: int) -> bool:
    """Return whether it is this process that answers there, and not one that was quicker."""
    with open("/proc/net/tcp") as table:
        sockets = {f"socket:[{line[9]}]" for line in map(str.split, table)
                   if line[1].endswith(f":{port:04X}") and line[3] == "0A"}
    try:
        if not any(os.readlink(entry) in sockets for entry in os.scandir(f"/proc/{pid}/fd")):
            return False
        Links(f"127.0.0.1:{port}").version()
    except OSError:  # it has just ended, or closed one of them
        return False
    except LinkError:
        return False
    return True
