"""The jobs of a run: what its nodes run in, how the harness reaches their agents, and where nodes are found.

A job keeps its place from incarnation to incarnation: whoever gave it back would have to queue for another one. One
that is requeued is waited for; for one whose machine is lost there is another one, before Slurm has noticed.
"""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

from diloco_chaos.harness.base.processes import TOKEN
from diloco_chaos.harness.places.base import ClusterError, NodeSpec
from diloco_chaos.harness.places.nodes.nodes import Nodes
from diloco_chaos.harness.places.remote.connection import ANSWER_S, AgentConnection
from diloco_chaos.harness.places.remote.hosts import LOOK_S, SETTINGS, AwayError, Host, Hosts, needed
from diloco_chaos.harness.places.slurm.job import NO_FOLDER, PORT_FILE, folder, script, submitted_with
from diloco_chaos.harness.places.slurm.queue import Job, SlurmError, SlurmQueue, job_name
from diloco_chaos.harness.places.slurm.settings import SlurmSettings
from diloco_chaos.harness.places.slurm.watch import QueueWatch
from diloco_chaos.harness.trainers.core.programs import Program

_READS = "reads"
_WHY = {NO_FOLDER: "it could not make a folder in {folder}", 127: "{python} is not there",
        126: "{python} can't be run"}


class Begun(NamedTuple):
    """One start of a job."""

    job: int
    restarts: int
    """How often it was requeued before."""
    folder: str
    """There."""


class QueuedJobs:
    """The jobs of one run. Implements `diloco_chaos.harness.places.remote.hosts.Hosting`."""

    def __init__(self, slurm: SlurmQueue, settings: SlurmSettings, label: str, run: Path, token: str) -> None:
        """`label`: of the run, `run`: its folder, `token`: what it is known by."""
        self.slurm, self._settings, self.label = slurm, settings, label
        self._run, self._token = run, token
        self.watch: QueueWatch | None = None
        """What becomes of them, once they are watched."""
        self._apart: dict[str, str] = {}  # node -> its word for its machine
        self._begun: dict[str, Begun] = {}  # host -> what it is
        self._bridges: list[subprocess.Popen[bytes]] = []
        self._bridging = threading.Lock()

    def begun(self, host: Host) -> Begun:
        """Return the start of a job that a host is."""
        return self._begun[host.name]

    # -- as hosts ------------------------------------------------------------------------------------------------------

    def make(self, spec: NodeSpec, number: int, before: Host | None, hosts: Hosts) -> Host:
        """The next start of the job that it has, where that was requeued; else another job."""
        name = job_name(self.label, spec.name)
        if before is not None and before.leaving and (job := self._job(before)) is not None and not job.over:
            which, restarts = job.number, max(job.restarts, self.begun(before).restarts + 1)
        else:
            self._apart[spec.name] = spec.machine
            asked = submitted_with(self._settings, sorted(hosts.avoided or self._not_for(spec, hosts)))
            which = self.slurm.submit(name, script(self._settings, name), asked, {TOKEN: self._token})
            restarts = 0
        begun = Begun(which, restarts, folder(self._settings, name, which, restarts))
        title = f"job {which}" + (f", requeued {restarts} times" if restarts else "")
        self._begun[title] = begun
        return Host(title, AgentConnection(spec.name, self._run, self._token, partial(self._dial, title, begun)))

    def give_up(self, host: Host) -> None:
        """Cancel its job where its machine was lost: Slurm is not to start it a second time once it has noticed."""
        if not host.leaving:
            self.slurm.cancel([self.begun(host).job])

    def must_come(self, host: Host, what: str, until: float) -> None:
        """Check that its job may still come: it has not ended, and was not waited for too long."""
        job = self._job(host)
        if job is not None and job.over:
            raise ClusterError(f"{what}: its job ended: {self._end_of(job)}")
        if time.monotonic() > until:
            waits = f"{job.state} ({job.reason})" if job is not None else "Slurm does not know it"
            raise ClusterError(f"{what}: its job does not run within {self._settings.start_within:g} s: {waits}. "
                               f"Raise `start_within`, or ask for less")

    def lost(self, host: Host) -> str:
        """Return why a host is gone, in words; empty while it is there. While its processes go on it is there, whatever
        becomes of its job."""
        if (job := self._job(host)) is None:
            return ""
        if job.restarts > self.begun(host).restarts and job.state != "COMPLETING":
            return "its job was requeued"
        return f"its job ended: {self._end_of(job)}" if job.over else ""

    def machine(self, host: Host) -> str:
        """Return the machine that Slurm has put it on; empty: not known yet."""
        job = self._job(host)
        return job.machine if job is not None and job.restarts == self.begun(host).restarts else ""

    def needs(self, spec: NodeSpec, host: Host) -> Mapping[str, bytes]:
        """Copies below its job's folder, and the settings with their names there: the machine is not the run's own."""
        here = needed(spec, self._run)
        if not here:
            return {}
        inside = self.begun(host).folder
        names = {str(path): f"{_READS}{path.absolute()}" for path in spec.reads}
        settings = {key: f"{inside}/{names[value]}" if isinstance(value, str) and value in names else value
                    for key, value in json.loads(here[SETTINGS]).items()}
        return {SETTINGS: json.dumps(settings).encode(),
                **{name: here[outside] for outside, name in names.items()}}

    def _not_for(self, spec: NodeSpec, hosts: Hosts) -> set[str]:
        """Machines of nodes that it may share none with."""
        others = [host for name, host in hosts.items() if self._apart[name] != spec.machine]
        return {self.machine(host) for host in others} - {""}

    def _job(self, host: Host) -> Job | None:
        """Return the host's job, as Slurm said of late; None: it has not said anything yet."""
        return self.watch.jobs.get(self.begun(host).job) if self.watch is not None else None

    def _end_of(self, job: Job) -> str:
        status = int(job.exit_code) if job.exit_code.isdigit() else 0
        why = _WHY.get(status, job.reason).format(folder=self._settings.folder, python=self._settings.python)
        return f"{job.state}" + (f", {why} on {job.machine}" if why not in ("", "None") else "")

    # -- what else is done with them -----------------------------------------------------------------------------------

    def signal(self, host: Host, step: str, number: signal.Signals) -> None:
        """Signal every process of a step; it comes late where the controller is away.

        Raises:
            SlurmError: Slurm refuses, or is away for too long.
        """
        _patiently(lambda: self.slurm.signal(f"{self.begun(host).job}.{step}", number))

    def requeue(self, host: Host) -> None:
        """End a job and put it back into the queue.

        Raises:
            SlurmError: Slurm refuses, or is away for too long.
        """
        begun = self.begun(host)

        def once() -> None:
            job = self.slurm.jobs(self.label).get(begun.job)
            if job is None or job.restarts == begun.restarts:  # else Slurm did it, and could not say so any more
                self.slurm.requeue(begun.job)
        _patiently(once)

    def close(self) -> None:
        """End all connections to agents."""
        for bridge in self._bridges:
            with suppress(ProcessLookupError):
                bridge.kill()
            bridge.wait()

    def _dial(self, title: str, begun: Begun) -> socket.socket:
        """Connect to its agent, which listens on loopback, through a step of its job."""
        job = self.watch.jobs.get(begun.job) if self.watch is not None else None
        if job is None or job.state != "RUNNING" or job.restarts != begun.restarts:
            raise SlurmError(f"{title} does not run")
        ours, theirs = socket.socketpair()
        with theirs:
            argv = [self._settings.python, f"{begun.folder}/agent.py", "--run", begun.folder, "--bridge", "--port-file",
                    f"{begun.folder}/{PORT_FILE}"]
            with self._bridging:
                self._bridges = [bridge for bridge in self._bridges if bridge.poll() is None]
                self._bridges.append(self.slurm.in_step(begun.job, argv, theirs.fileno()))
        return ours


class JobAddresses:
    """Implements `diloco_chaos.harness.places.commands.Addresses`."""

    def __init__(self, jobs: QueuedJobs, hosts: Hosts, nodes: Nodes[Any], python: str) -> None:
        """`python`: the interpreter on the machines."""
        self._jobs, self._hosts, self._nodes, self._python = jobs, hosts, nodes, python
        self._address = cache(jobs.slurm.address)

    def port_for(self, spec: NodeSpec, program: Program) -> int:
        """Return the program's own port, or one of the machine's that is free now."""
        if program.port:
            return program.port
        host = self._hosts[spec.name]
        self._hosts.wait_there(host, spec.name)
        return int(host.agent.ask("port")["port"])

    def found_at(self, node: str) -> str:
        """Return the IP address of the machine that it is on."""
        return ip_of(self._address(self._hosts.wait_placed(node)))

    def seen_at(self, node: str) -> tuple[str, int]:
        """Return the same address, and the node's port."""
        return self.found_at(node), self._nodes.ports[node]

    def words(self, node: str) -> Mapping[str, str]:
        """Return its interpreter, its folder, which is its job's, and its host: it listens where others find it."""
        return {"python": self._python, "run": self._jobs.begun(self._hosts[node]).folder, "host": self.found_at(node)}


def ip_of(host: str) -> str:
    """Return the IP address of a host by its name; an address stays the same.

    Raises:
        SlurmError: nobody knows it.
    """
    try:
        return socket.gethostbyname(host)
    except OSError as error:
        raise SlurmError(f"{host}: nobody knows where that is ({error})") from error


def _patiently(act: Callable[[], None]) -> None:
    """Try again and again while the controller is away: then it comes late.

    Raises:
        SlurmError: it refuses, or is away for too long.
    """
    until = time.monotonic() + ANSWER_S
    while True:
        try:
            act()
            return
        except AwayError:
            if time.monotonic() > until:
                raise
            time.sleep(LOOK_S)
