"""The cluster in Slurm: a job and an agent for each node, each incarnation a step of it, links beside the harness.

A job keeps its place from incarnation to incarnation: whoever gave it back would have to queue for another one. One
that is requeued is waited for; for one whose machine is lost there is another one, before Slurm has noticed.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache, partial
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from diloco_chaos.harness.base.processes import TOKEN
from diloco_chaos.harness.places.base import ClusterError, NodeSpec, Recorder
from diloco_chaos.harness.places.local.links import LOOPBACK, OURS, LinksBeside
from diloco_chaos.harness.places.remote.cluster import LOOK_S, SETTINGS, AwayError, RemoteCluster
from diloco_chaos.harness.places.remote.connection import ANSWER_S, Connection
from diloco_chaos.harness.places.remote.node import Host, RemoteNode
from diloco_chaos.harness.places.slurm.job import NO_FOLDER, PORT_FILE, folder, launched, script, submitted_with
from diloco_chaos.harness.places.slurm.node import Step
from diloco_chaos.harness.places.slurm.queue import Job, Slurm, SlurmError, job_name, wait_over
from diloco_chaos.harness.places.slurm.settings import SlurmSettings
from diloco_chaos.harness.places.slurm.undos import SlurmJobs
from diloco_chaos.harness.places.slurm.watch import Watch
from diloco_chaos.harness.record.undo_log import UndoLog, run_label
from diloco_chaos.harness.trainers.core.programs import Program

_GONE_S = 20.0
_READS = "reads"
_WHY = {NO_FOLDER: "it could not make a folder in {folder}", 127: "{python} is not there",
        126: "{python} can't be run"}
_DISCARD = 9


class Begun(NamedTuple):
    """One start of a job."""

    job: int
    restarts: int
    """How often it was requeued before."""
    folder: str
    """There."""


class SlurmCluster(RemoteCluster[SlurmSettings], LinksBeside[RemoteNode]):
    """Implements `diloco_chaos.harness.places.base.Cluster`."""

    def __init__(self, run: Path, record: Recorder, undo_log: UndoLog, settings: SlurmSettings) -> None:
        """See `SupervisedCluster`."""
        super().__init__(run, record, undo_log, settings)
        self._slurm, self._label = Slurm(), run_label(undo_log.token)
        self._watch: Watch | None = None
        self._apart: dict[str, str] = {}  # node -> its word for its machine
        self._begun: dict[str, Begun] = {}  # host -> what it is
        self._bridges: list[subprocess.Popen[bytes]] = []
        self._bridging = threading.Lock()
        self._address = cache(self._slurm.address)

    # -- the beginning -------------------------------------------------------------------------------------------------

    def start(self, nodes: Sequence[NodeSpec]) -> None:
        """The links, the jobs, the node that others connect to, then all others."""
        self._owes = self._undo_log.record(SlurmJobs, config=os.environ.get("SLURM_CONF", ""), run=self._label)
        self._links_at = _ip(self._settings.address) if self._settings.address else self._seen_from_machines()
        self._begin_links()
        self._watch = Watch(self._slurm, self._label)
        self._watching.append(self._watch)
        self._prepare_all(nodes)
        self._start_all(nodes, LOOPBACK)

    def _seen_from_machines(self) -> str:
        """This machine's address on the way to theirs."""
        machine = next(iter(self._slurm.machines(self._settings.partition)), "")
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as way:  # nothing is sent
            try:
                way.connect((self._slurm.address(machine), _DISCARD))
            except OSError as error:
                raise SlurmError(f"no way leads from here to {machine or 'any machine'} ({error}): say in `address` "
                                 f"where jobs find this machine") from error
            return str(way.getsockname()[0])

    def _make_host(self, spec: NodeSpec, number: int) -> Host:
        before, name = self._hosts.get(spec.name), job_name(self._label, spec.name)
        if before is not None and before.leaving and (job := self._job(before)) is not None and not job.over:
            which, restarts = job.number, max(job.restarts, self._begun[before.name].restarts + 1)
        else:
            self._apart[spec.name] = spec.machine
            asked = submitted_with(self._settings, sorted(self._avoided or self._not_for(spec)))
            which = self._slurm.submit(name, script(self._settings, name), asked, {TOKEN: self._undo_log.token})
            restarts = 0
        begun = Begun(which, restarts, folder(self._settings, name, which, restarts))
        title = f"job {which}" + (f", requeued {restarts} times" if restarts else "")
        self._begun[title] = begun
        dial = partial(self._dial, title, begun)
        return Host(title, Connection(spec.name, self._run, self._undo_log.token, dial))

    def _not_for(self, spec: NodeSpec) -> set[str]:
        """Machines of nodes that it may share none with."""
        others = [host for name, host in self._hosts.items() if self._apart[name] != spec.machine]
        return {self._machine(host) for host in others} - {""}

    def _dial(self, title: str, begun: Begun) -> socket.socket:
        """To its agent, which listens on loopback: through a step of its job."""
        job = self._watch.jobs.get(begun.job) if self._watch is not None else None
        if job is None or job.state != "RUNNING" or job.restarts != begun.restarts:
            raise SlurmError(f"{title} does not run")
        ours, theirs = socket.socketpair()
        with theirs:
            argv = [self._settings.python, f"{begun.folder}/agent.py", "--run", begun.folder, "--bridge", "--port-file",
                    f"{begun.folder}/{PORT_FILE}"]
            with self._bridging:
                self._bridges = [bridge for bridge in self._bridges if bridge.poll() is None]
                self._bridges.append(self._slurm.in_step(begun.job, argv, theirs.fileno()))
        return ours

    def _give_up(self, host: Host) -> None:
        """Where its machine was lost: Slurm is not to start it a second time once it has noticed."""
        if not host.leaving:
            self._slurm.cancel([self._begun[host.name].job])

    def _must_come(self, host: Host, what: str, until: float) -> None:
        job = self._job(host)
        if job is not None and job.over:
            raise ClusterError(f"{what}: its job ended: {self._end_of(job)}")
        if time.monotonic() > until:
            waits = f"{job.state} ({job.reason})" if job is not None else "Slurm does not know it"
            raise ClusterError(f"{what}: its job does not run within {self._settings.start_within:g} s: {waits}. "
                               f"Raise `start_within`, or ask for less")

    def _end_of(self, job: Job) -> str:
        status = int(job.exit_code) if job.exit_code.isdigit() else 0
        why = _WHY.get(status, job.reason).format(folder=self._settings.folder, python=self._settings.python)
        return f"{job.state}" + (f", {why} on {job.machine}" if why not in ("", "None") else "")

    def _lost(self, host: Host) -> str:
        if (job := self._job(host)) is None:
            return ""
        if job.restarts > self._begun[host.name].restarts and job.state != "COMPLETING":
            return "its job was requeued"
        return f"its job ended: {self._end_of(job)}" if job.over else ""

    def _job(self, host: Host) -> Job | None:
        """As Slurm said of late; None: it has not said anything yet."""
        return self._watch.jobs.get(self._begun[host.name].job) if self._watch is not None else None

    def _machine(self, host: Host) -> str:
        job = self._job(host)
        return job.machine if job is not None and job.restarts == self._begun[host.name].restarts else ""

    def _answers(self) -> bool:
        return self._slurm.answers()

    def _node(self, spec: NodeSpec, number: int, host: Host) -> RemoteNode:
        def through_slurm(step: str, which: signal.Signals) -> None:
            _patiently(lambda: self._slurm.signal(f"{self._begun[host.name].job}.{step}", which))
        return Step(spec, number, self._undo_log, host, self._start, through_slurm)

    def _start(self, node: RemoteNode) -> None:
        inside = self._begun[node.host.name].folder
        if (program := node.spec.program) is not None:
            started = self._started(node.spec, program, node.incarnation)
            argv, env, cwd = started.argv, started.env, started.cwd
        else:
            node.ahead = node.host.clock.best(time.monotonic()).ahead
            filled = node.spec.command(node.incarnation, python=self._settings.python, host=self._found_at(node.name),
                                       listen=self._listens.get(node.name, 0), ahead=node.ahead,
                                       connect=self._addresses.get(node.name, ""))
            argv = [inside if part == str(self._run) else part for part in filled]
            env, cwd = OURS, ""
        if node.name in self._listens and node.incarnation > node.spec.incarnation:
            self._lead_to(node.name)
        argv, file = launched(inside, node.process, self._settings.cpus, argv)
        node.agent.ask("spawn", name=node.process, argv=argv, env=env, cwd=cwd, pid_in=file)

    def _lead_to(self, node: str) -> None:
        """Its job may be on another machine than before: whoever has a link to it is to find it there."""
        upstream = f"{self._found_at(node)}:{self._listens[node]}"
        with self._linking:
            for other in list(self._nodes.values()):
                program = other.spec.program
                for link in (link for link, to in other.spec.links.items() if to == node):
                    if program is None or node in program.talks_to:
                        self._links().lead(link, upstream)

    def _needs(self, spec: NodeSpec) -> dict[str, bytes]:
        """Copies below its job's folder, and the settings with their names there: the machine is not the run's own."""
        needed = super()._needs(spec)
        if not needed:
            return {}
        inside = self._begun[self._hosts[spec.name].name].folder
        names = {str(path): f"{_READS}{path.absolute()}" for path in spec.reads}
        settings = {key: f"{inside}/{names[value]}" if isinstance(value, str) and value in names else value
                    for key, value in json.loads(needed[SETTINGS]).items()}
        return {SETTINGS: json.dumps(settings).encode(),
                **{name: needed[outside] for outside, name in names.items()}}

    # -- what only jobs have -------------------------------------------------------------------------------------------

    def requeue(self, node: str, restart_after: float | None) -> None:
        """See `diloco_chaos.harness.places.base.Jobs`."""
        current = self._nodes[node]
        if not current.alive or current.host.lost:
            return
        current.expected_exit, current.restart_after = True, restart_after
        current.host.leaving = True
        begun = self._begun[current.host.name]

        def once() -> None:
            job = self._slurm.jobs(self._label).get(begun.job)
            if job is None or job.restarts == begun.restarts:  # else Slurm did it, and could not say so any more
                self._slurm.requeue(begun.job)
        _patiently(once)

    # -- the end -------------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """And all jobs are cancelled. Where Slurm does not answer, that stays owed."""
        self._end_nodes()
        for host in self._all_hosts():
            host.close()
        for bridge in self._bridges:
            with suppress(ProcessLookupError):
                bridge.kill()
            bridge.wait()
        self._end_links()
        self._close_echo()
        self._leave_nothing()

    def _remove_everything(self) -> None:
        wait_over(self._slurm, self._label, _GONE_S)

    # -- nodes that are commands ---------------------------------------------------------------------------------------

    def _port_for(self, spec: NodeSpec, program: Program) -> int:
        """Of the machine's, which nobody has now."""
        if program.port:
            return program.port
        self._wait_there(self._hosts[spec.name], spec.name)
        return int(self._hosts[spec.name].agent.ask("port")["port"])

    def _found_at(self, node: str) -> str:
        self._wait_placed(node)
        return _ip(self._address(self._machine(self._hosts[node])))

    def _seen_at(self, node: str) -> tuple[str, int]:
        return self._found_at(node), self._listens[node]

    def _place(self) -> dict[str, str]:
        return {"python": self._settings.python}

    def _own(self, spec: NodeSpec, program: Program, number: int) -> dict[str, str]:
        """Its folder is its job's, and it listens where others find it."""
        inside = self._begun[self._hosts[spec.name].name].folder
        return super()._own(spec, program, number) | {"run": inside, "host": self._found_at(spec.name)}

    def _state_at(self, node: str) -> str:
        state, run = PurePosixPath(super()._state_at(node)), self._run.absolute()
        return str(state.relative_to(run)) if state.is_relative_to(run) else str(state)


def _ip(host: str) -> str:
    """Of a host's name, or the same.

    Raises:
        SlurmError: nobody knows it.
    """
    try:
        return socket.gethostbyname(host)
    except OSError as error:
        raise SlurmError(f"{host}: nobody knows where that is ({error})") from error


def _patiently(act: Callable[[], None]) -> None:
    """Again and again while the controller is away: then it comes late.

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
