"""The cluster as processes on this machine: no root, no Docker, nothing but Python."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from harness import tape
from harness.cluster.base import ABILITIES, Ability, ClusterError, NodeSpec, NodeState, Recorder
from harness.cluster.linkserver import START_TIMEOUT_S, LinkServer
from harness.cluster.process import STOP_TIMEOUT_S, Process
from harness.ledger import Enable, Ledger, Toxin
from harness.links.client import Links, Toxic
from harness.processes import TOKEN

_LINKS = "links"


class LocalCluster:
    """Implements `harness.cluster.base.Cluster`.

    Nodes die with the thread that made the cluster (PR_SET_PDEATHSIG), so make it in a thread that lives as long as the
    run. Each node has its own process group: Ctrl-C in a terminal reaches the harness alone.
    """

    def __init__(self, run: Path, record: Recorder, ledger: Ledger, *, links_port: int = 0,
                 toxiproxy: str = "") -> None:
        """`run`: the run's folder, for logs and to read `listening` from the tape. `ledger`: for undos, and for the
        token that every process carries. `links_port`: the port of Toxiproxy's API, 0 for any. `toxiproxy`: the real
        server's binary, empty for the embedded one."""
        self._run, self._record, self._ledger = run, record, ledger
        self._links_port, self._toxiproxy = links_port, toxiproxy
        self._processes: dict[str, Process] = {}
        self._superseded: dict[str, Process] = {}
        self._server: LinkServer | None = None
        self._addresses: dict[str, str] = {}
        self._ports: dict[str, int] = {}
        self._toxics: dict[tuple[str, str], int] = {}
        self._cut: dict[str, int] = {}
        (run / "logs").mkdir(parents=True, exist_ok=True)

    def abilities(self) -> set[Ability]:
        """Everything that needs no privileges."""
        return set(ABILITIES)

    def start(self, nodes: Sequence[NodeSpec]) -> None:
        """Start the links, the nodes that listen, then all others."""
        self._server = LinkServer(self._run, lambda argv: self._popen(argv, _LINKS, 0, {}),
                                  lambda: self._last_lines(_LINKS, 0), binary=self._toxiproxy, port=self._links_port)
        for spec in (node for node in nodes if node.listens):
            self._spawn(spec, 0)
            self._ports[spec.name] = self._listening_port(spec.name)
        for spec in (node for node in nodes if not node.listens):
            upstream = f"127.0.0.1:{self._ports[spec.connects_to]}"
            self._addresses[spec.name] = self._api().create(spec.name, upstream)
            self._spawn(spec, 0)

    def poll(self) -> None:
        """Notice deaths, restart what is due."""
        now = time.monotonic()
        for process in self._everyone():
            if (status := process.look(now)) is not None:
                self._gone(process, status)
            if process.restart_at is not None and now >= process.restart_at:
                process.restart_at = None
                self._spawn(process.spec, process.incarnation + 1)

    def states(self) -> dict[str, NodeState]:
        """Every node's state."""
        return {name: process.known() for name, process in self._processes.items()}

    # -- faults of processes -------------------------------------------------------------------------------------------

    def kill(self, node: str, restart_after: float | None) -> None:
        """SIGKILL, also to a process that stands still."""
        self._processes[node].end(signal.SIGKILL, restart_after)

    def terminate(self, node: str, restart_after: float | None) -> None:
        """SIGTERM, and SIGKILL after two seconds."""
        self._processes[node].end(signal.SIGTERM, restart_after)

    def pause(self, node: str) -> None:
        """SIGSTOP."""
        self._processes[node].pause()

    def resume(self, node: str) -> None:
        """SIGCONT, to the process that was paused."""
        self._processes[node].resume()

    def throttle(self, node: str, share: float | None, spread: float = 0.0, seed: int = 0) -> None:
        """SIGSTOP and SIGCONT in turn, a period of about a second."""
        self._processes[node].throttle(share, spread, seed)

    def supersede(self, node: str) -> None:
        """SIGSTOP, and a new process under the next number."""
        process, before = self._processes[node], self._superseded.get(node)
        if process.alive and not (before and before.alive):
            process.pause()
            process.doomed = True
            self._superseded[node] = process
            self._spawn(process.spec, process.incarnation + 1)

    def revive(self, node: str) -> None:
        """SIGCONT to the old process; it is killed if it does not see within two seconds that it is superseded."""
        if node in self._superseded:
            self._superseded[node].resume(die_within=STOP_TIMEOUT_S)

    def limit_writes(self, node: str, size: int, restart_after: float) -> None:
        """RLIMIT_FSIZE of the process, set from outside."""
        self._processes[node].limit_writes(size, restart_after)

    def unlimit_writes(self, node: str) -> None:
        """The limit from before."""
        self._processes[node].unlimit_writes()

    # -- state ---------------------------------------------------------------------------------------------------------

    def wait_gone(self, node: str) -> None:
        """Wait for the process."""
        process = self._processes[node]
        if process.alive:
            self._gone(process, process.wait())

    def state_files(self, node: str) -> dict[str, int]:
        """The files in its folder of state."""
        return {path.name: path.stat().st_size for path in sorted(self._state_folder(node).glob("*")) if path.is_file()}

    def tape_size(self, node: str) -> int:
        """The tape of the newest incarnation."""
        path = self._run / "tape" / f"{node}.{self._processes[node].incarnation}.jsonl"
        return path.stat().st_size if path.exists() else 0

    def alter(self, node: str, name: str, change: Callable[[bytes], bytes | None]) -> None:
        """Rewrite or remove a file."""
        path = self._state_folder(node) / name
        changed = change(path.read_bytes())
        if changed is None:
            path.unlink()
        else:
            path.write_bytes(changed)

    def _state_folder(self, node: str) -> Path:
        spec = self._processes[node].spec
        if not spec.state:
            raise ClusterError(f"{node} keeps no state")
        return self._run / spec.state

    # -- links ---------------------------------------------------------------------------------------------------------

    def links_of(self, node: str) -> list[str]:
        """Its own link, or all that lead to it."""
        return [node] if node in self._addresses else [
            name for name in self._addresses if self._processes[name].spec.connects_to == node]

    def address(self, link: str) -> str:
        """Where the node's side of a link listens."""
        return self._addresses[link]

    def degrade(self, link: str, toxics: Sequence[Toxic]) -> None:
        """Put these toxics on a link."""
        for toxic in toxics:
            self._toxics[link, toxic.name] = self._owe_link(Toxin, link=link, name=toxic.name)
            self._api().add(link, toxic)

    def restore(self, link: str, toxics: Sequence[Toxic]) -> None:
        """Take these toxics off a link."""
        for toxic in toxics:
            self._api().remove(link, toxic.name)
            if (link, toxic.name) in self._toxics:
                self._ledger.done(self._toxics.pop((link, toxic.name)))

    def cut(self, link: str, cut: bool) -> None:
        """Take a link down, or bring it up again at the same address."""
        if cut and link not in self._cut:
            self._cut[link] = self._owe_link(Enable, link=link)
        self._api().set_enabled(link, not cut)
        if not cut and link in self._cut:
            self._ledger.done(self._cut.pop(link))

    def _owe_link(self, undo: type[Toxin | Enable], **fields: object) -> int:
        assert self._server is not None, "there are no links before `start`"
        return self._ledger.owe(undo, api=self._server.api, server=self._server.identity, **fields)

    def _api(self) -> Links:
        if self._server is None:
            raise ClusterError("the links are not up yet")
        return self._server.links

    # -- the end -------------------------------------------------------------------------------------------------------

    def residue(self) -> list[str]:
        """What of any fault is still there."""
        left = [words for process in self._everyone() for words in process.residue()]
        for link in self._addresses:
            left += [f"toxic {toxic.name} on {link}" for toxic in self._api().toxics(link)]
            left += [] if self._api().enabled(link) else [f"{link} is cut off"]
        return left

    def dump_stacks(self) -> None:
        """SIGUSR1: nodes write their stacks to their logs (a stopped one does so when it is ended)."""
        for process in self._processes.values():
            if process.alive:
                process.popen.send_signal(signal.SIGUSR1)

    def stop(self) -> None:
        """SIGTERM, and SIGKILL after two seconds; what was owed for these processes is owed no more."""
        for process in self._everyone():
            process.stop()
        if self._server is not None:
            self._server.process.terminate()
        until = time.monotonic() + STOP_TIMEOUT_S
        for process in self._everyone():
            process.reap(until)
        if self._server is not None:
            self._server.process.wait()
        for number in (*self._toxics.values(), *self._cut.values()):
            self._ledger.done(number)

    # -- processes -----------------------------------------------------------------------------------------------------

    def _spawn(self, spec: NodeSpec, incarnation: int) -> None:
        filled = {"{incarnation}": str(incarnation), "{listen}": str(self._ports.get(spec.name, 0)),
                  "{connect}": self._addresses.get(spec.name, "")}
        argv = [filled.get(part, part) for part in spec.argv] + list(spec.first_start if incarnation == 0 else ())
        popen = self._popen([*argv, "--parent", str(os.getpid())], spec.name, incarnation, dict(spec.env))
        self._processes[spec.name] = Process(spec, incarnation, popen, self._ledger)
        self._record("spawn", target=spec.name, incarnation=incarnation, pid=popen.pid)

    def _popen(self, argv: Sequence[str], name: str, incarnation: int, env: dict[str, str]) -> subprocess.Popen[bytes]:
        ours = {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1", TOKEN: self._ledger.token}
        with open(self._run / "logs" / f"{name}.{incarnation}.log", "wb") as log:
            return subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                    env=os.environ | ours | env, process_group=0)

    def _gone(self, process: Process, status: int) -> None:
        self._record("exit", target=process.name, incarnation=process.incarnation, status=status,
                     killed=process.doomed)
        if status != 0 and not process.doomed:
            raise ClusterError(f"{process.name} died on its own ({_status(status)}):\n"
                               f"{self._last_lines(process.name, process.incarnation)}")

    def _everyone(self) -> list[Process]:
        return [*self._processes.values(), *self._superseded.values()]

    def _last_lines(self, name: str, incarnation: int, count: int = 12) -> str:
        """The end of a node's log."""
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
                raise ClusterError(f"{name} did not start ({_status(status)}):\n{self._last_lines(name, 0)}")
            time.sleep(0.02)
        raise ClusterError(f"{name} did not listen within {START_TIMEOUT_S:.0f} s:\n{self._last_lines(name, 0)}")


def _status(status: int) -> str:
    return f"killed by {signal.Signals(-status).name}" if status < 0 else f"exit code {status}"
