"""The cluster as processes on this machine: no root, no Docker, nothing but Python."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness import tape
from harness.cluster.base import Ability, ClusterError, NodeSpec, NodeState, Recorder
from harness.cluster.duty import DutyCycle
from harness.links.client import Links, Toxic

START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 2.0
_LINKS = "links"


@dataclass
class _Process:
    spec: NodeSpec
    incarnation: int
    popen: subprocess.Popen[bytes]
    killed: bool = False
    throttled: DutyCycle | None = None
    restart_at: float | None = None
    status: int | None = None


class LocalCluster:
    """Implements `harness.cluster.base.Cluster`.

    Nodes die with the thread that made the cluster (PR_SET_PDEATHSIG), so make it in a thread that lives as long as the
    run. Each node has its own process group: Ctrl-C in a terminal reaches the harness alone.
    """

    def __init__(self, run: Path, record: Recorder, *, links_port: int = 0) -> None:
        """`run`: the run's folder, for logs and to read `listening` from the tape. `links_port`: the port of
        Toxiproxy's API, 0 for any."""
        self._run, self._record, self._links_port = run, record, links_port
        self._processes: dict[str, _Process] = {}
        self._links_process: subprocess.Popen[bytes] | None = None
        self._links: Links | None = None
        self._addresses: dict[str, str] = {}
        self._ports: dict[str, int] = {}
        (run / "logs").mkdir(parents=True, exist_ok=True)

    def abilities(self) -> set[Ability]:
        """Everything that needs no privileges."""
        return {"kill", "restart", "throttle", "links"}

    def start(self, nodes: Sequence[NodeSpec]) -> None:
        """Start the links, the nodes that listen, then all others."""
        self._start_links()
        for spec in (node for node in nodes if node.listens):
            self._spawn(spec, 0)
            self._ports[spec.name] = self._listening_port(spec.name)
        assert self._links is not None
        for spec in (node for node in nodes if not node.listens):
            upstream = f"127.0.0.1:{self._ports[spec.connects_to]}"
            self._addresses[spec.name] = self._links.create(spec.name, upstream)
            self._spawn(spec, 0)

    def poll(self) -> None:
        """Notice deaths, restart what is due."""
        now = time.monotonic()
        for name, process in list(self._processes.items()):
            if process.status is None and (status := process.popen.poll()) is not None:
                self._gone(name, process, status)
            if process.restart_at is not None and now >= process.restart_at:
                self._spawn(process.spec, process.incarnation + 1)

    def states(self) -> dict[str, NodeState]:
        """Every node's state."""
        def state(process: _Process) -> NodeState:
            if process.status is None:
                paused = process.throttled is not None and process.throttled.paused
                return NodeState("paused" if paused else "running", process.incarnation, process.popen.pid)
            return NodeState("finished" if process.status == 0 else "dead", process.incarnation, None)
        return {name: state(process) for name, process in self._processes.items()}

    def kill(self, node: str, restart_after: float | None) -> int:
        """SIGKILL, also to a process that stands still."""
        process = self._processes[node]
        process.killed = True
        process.popen.kill()
        status = process.popen.wait(STOP_TIMEOUT_S)
        if process.status is None:
            self._gone(node, process, status)
        process.restart_at = None if restart_after is None else time.monotonic() + restart_after
        return status

    def throttle(self, node: str, factor: float | None) -> None:
        """SIGSTOP and SIGCONT in turn, a period of about a second."""
        process = self._processes[node]
        if process.throttled is not None:
            process.throttled.end()
        process.throttled = None if factor is None else DutyCycle(process.popen, factor)

    def address(self, link: str) -> str:
        """Where the node's side of a link listens."""
        return self._addresses[link]

    def degrade(self, link: str, toxics: Sequence[Toxic]) -> None:
        """Put these toxics on a link."""
        for toxic in toxics:
            self._api().add(link, toxic)

    def restore(self, link: str, toxics: Sequence[Toxic]) -> None:
        """Take these toxics off a link."""
        for toxic in toxics:
            self._api().remove(link, toxic.name)

    def cut(self, link: str, cut: bool) -> None:
        """Take a link down, or bring it up again at the same address."""
        self._api().set_enabled(link, not cut)

    def residue(self) -> list[str]:
        """What of any fault is still there."""
        left = [f"{name} is throttled" for name, process in self._processes.items()
                if process.throttled is not None and process.status is None]
        left += [f"{name} is stopped" for name, process in self._processes.items()
                 if process.status is None and _kernel_state(process.popen.pid) == "T"]
        for link in self._addresses:
            left += [f"toxic {toxic.name} on {link}" for toxic in self._api().toxics(link)]
            left += [] if self._api().enabled(link) else [f"{link} is cut off"]
        return left

    def dump_stacks(self) -> None:
        """SIGUSR1: nodes write their stacks to their logs (a stopped one does so when it is ended)."""
        for process in self._processes.values():
            if process.status is None:
                process.popen.send_signal(signal.SIGUSR1)

    def stop(self) -> None:
        """SIGTERM, and SIGKILL after two seconds."""
        alive = [process for process in self._processes.values() if process.popen.poll() is None]
        for process in alive:
            process.restart_at = None
            if process.throttled is not None:
                process.throttled.end()
            process.popen.send_signal(signal.SIGCONT)
            process.popen.terminate()
        everyone = [process.popen for process in alive] + ([self._links_process] if self._links_process else [])
        if self._links_process:
            self._links_process.terminate()
        until = time.monotonic() + STOP_TIMEOUT_S
        for popen in everyone:
            try:
                popen.wait(max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                popen.kill()
                popen.wait()

    # -- processes -----------------------------------------------------------------------------------------------

    def _spawn(self, spec: NodeSpec, incarnation: int) -> None:
        filled = {"{incarnation}": str(incarnation), "{listen}": str(self._ports.get(spec.name, 0)),
                  "{connect}": self._addresses.get(spec.name, "")}
        argv = [filled.get(part, part) for part in spec.argv] + list(spec.first_start if incarnation == 0 else ())
        popen = self._popen([*argv, "--parent", str(os.getpid())], spec.name, incarnation, dict(spec.env))
        self._processes[spec.name] = _Process(spec, incarnation, popen)
        self._record("spawn", target=spec.name, incarnation=incarnation, pid=popen.pid)

    def _popen(self, argv: Sequence[str], name: str, incarnation: int, env: dict[str, str]) -> subprocess.Popen[bytes]:
        with open(self._run / "logs" / f"{name}.{incarnation}.log", "wb") as log:
            return subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                    env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"} | env,
                                    process_group=0)

    def _gone(self, name: str, process: _Process, status: int) -> None:
        process.status = status
        if process.throttled is not None:
            process.throttled.end()
        self._record("exit", target=name, incarnation=process.incarnation, status=status, killed=process.killed)
        if status != 0 and not process.killed:
            raise ClusterError(f"{name} died on its own ({_status(status)}):\n{self.last_lines(name)}")

    def last_lines(self, name: str, count: int = 12) -> str:
        """The end of a node's newest log."""
        process = self._processes.get(name)
        incarnation = process.incarnation if process else 0
        path = self._run / "logs" / f"{name}.{incarnation}.log"
        lines = path.read_text(errors="replace").splitlines()[-count:] if path.exists() else []
        return "\n".join(f"  {line}" for line in lines) or "  (its log is empty)"

    def _listening_port(self, name: str) -> int:
        """The port that a node says it listens on."""
        until = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < until:
            for event in tape.read(self._run / "tape").of("listening", node=name):
                return int(event["port"])
            if (status := self._processes[name].popen.poll()) is not None:
                raise ClusterError(f"{name} did not start ({_status(status)}):\n{self.last_lines(name)}")
            time.sleep(0.02)
        raise ClusterError(f"{name} did not listen within {START_TIMEOUT_S:.0f} s:\n{self.last_lines(name)}")

    # -- links ---------------------------------------------------------------------------------------------------

    def _start_links(self) -> None:
        address = self._run / "links.address"
        self._links_process = self._popen(
            [sys.executable, "-m", "harness.links.server", "--port", str(self._links_port), "--address-file",
             str(address), "--parent", str(os.getpid())], _LINKS, 0, {})
        until = time.monotonic() + START_TIMEOUT_S
        while not address.exists():
            if self._links_process.poll() is not None:
                raise ClusterError(f"the link server did not start:\n{self.last_lines(_LINKS)}")
            if time.monotonic() > until:
                raise ClusterError(f"the link server did not answer within {START_TIMEOUT_S:.0f} s")
            time.sleep(0.01)
        self._links = Links(address.read_text().strip())

    def _api(self) -> Links:
        if self._links is None:
            raise ClusterError("the links are not up yet")
        return self._links


def _kernel_state(pid: int) -> str:
    """One letter, as in /proc/PID/stat: R, S, T (stopped), ..."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def _status(status: int) -> str:
    return f"killed by {signal.Signals(-status).name}" if status < 0 else f"exit code {status}"
