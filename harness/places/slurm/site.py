"""A run in Slurm: a job and an agent for each node, each incarnation a step of it, links beside the harness."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Collection, Sequence
from functools import partial
from pathlib import Path, PurePosixPath

from diloco_chaos.harness.places.base import NodeSpec, Recorder
from diloco_chaos.harness.places.links.run_links import RunLinks
from diloco_chaos.harness.places.local.links import CorruptedLinks, LinksBeside
from diloco_chaos.harness.places.local.spawning import LOOPBACK, OURS
from diloco_chaos.harness.places.nodes.nodes import Nodes
from diloco_chaos.harness.places.remote.files import AgentFiles
from diloco_chaos.harness.places.remote.hosts import Hosts
from diloco_chaos.harness.places.remote.machine_faults import MachineFaults
from diloco_chaos.harness.places.remote.machines import WatchedMachines
from diloco_chaos.harness.places.remote.process import RemoteProcess
from diloco_chaos.harness.places.remote.run import RemoteRun
from diloco_chaos.harness.places.site import Site
from diloco_chaos.harness.places.slurm.job import launched
from diloco_chaos.harness.places.slurm.jobs import JobAddresses, QueuedJobs, ip_of
from diloco_chaos.harness.places.slurm.queue import SlurmError, SlurmQueue, wait_over
from diloco_chaos.harness.places.slurm.settings import SlurmSettings
from diloco_chaos.harness.places.slurm.step import StepHand
from diloco_chaos.harness.places.slurm.undos import SlurmJobs
from diloco_chaos.harness.places.slurm.watch import QueueWatch
from diloco_chaos.harness.record.undo_log import UndoLog, run_label
from diloco_chaos.harness.trainers.wire.echo import EchoServer

_GONE_S = 20.0
_DISCARD = 9


class SlurmSite(Site):
    """See the module."""

    nodes: Nodes[RemoteProcess]

    def __init__(self, run: Path, record: Recorder, undo_log: UndoLog, settings: SlurmSettings) -> None:
        """See `diloco_chaos.harness.places.place.Place.site`."""
        (run / "logs").mkdir(parents=True, exist_ok=True)
        self._run, self._token, self._settings = run, undo_log.token, settings
        self.slurm = SlurmQueue()
        self.jobs = QueuedJobs(self.slurm, settings, run_label(undo_log.token), run, undo_log.token)
        self.hosts = Hosts(self.jobs, settings.start_within)
        self.nodes = Nodes(run, record, undo_log, self._spawn)
        self._server = LinksBeside(run, undo_log.token)
        self.links = RunLinks(self._server, self.nodes, undo_log)
        self.files = AgentFiles(run, self.nodes, self.hosts, self._folder_there)
        self._addresses = JobAddresses(self.jobs, self.hosts, self.nodes, settings.python)
        self._remote = RemoteRun(run, record, undo_log, self.hosts, self.nodes, self.links, self._addresses,
                                 settings.start_within)
        self._machines = MachineFaults(self.hosts, self.nodes, settings, undo_log, self.slurm.answers)
        self.parts = (self.links, CorruptedLinks(self._server, self.links), self._machines,
                      WatchedMachines(self.hosts), Requeues(self.jobs, self.nodes))
        self._echo: EchoServer | None = None

    def start(self, nodes: Sequence[NodeSpec]) -> None:
        """The links, the jobs, the node that others connect to, then all others."""
        self._remote.owe(SlurmJobs, config=os.environ.get("SLURM_CONF", ""), run=self.jobs.label)
        self._server.begin(at=ip_of(self._settings.address) if self._settings.address else self._seen_from_machines())
        self.jobs.watch = QueueWatch(self.slurm, self.jobs.label)
        self._remote.watching.append(self.jobs.watch)
        self._remote.prepare(nodes)
        self._remote.start(nodes, self._begin_echo)

    def join(self, node: NodeSpec) -> None:
        """Start a node in a job of its own."""
        self._remote.join(node)

    def poll(self) -> None:
        """Supervise as on all other machines."""
        self._remote.poll()

    def dump_stacks(self, nodes: Collection[str]) -> None:
        """Write where their agents see them stand to files in the run's folder, too."""
        self._remote.write_stacks(nodes)
        super().dump_stacks(nodes)

    def stop(self) -> None:
        """End every node and link, and cancel all jobs. Where Slurm does not answer, that stays owed."""
        self._remote.end()
        self.jobs.close()
        self._server.end()
        self.links.close()
        if self._echo is not None:
            self._echo.close()
            self._echo = None
        self._remote.leave_nothing(self._machines.undo, remove=self._cancel)

    def _begin_echo(self) -> str:
        self._echo = EchoServer(self._token, LOOPBACK)
        return self._echo.address

    def _cancel(self) -> None:
        wait_over(self.slurm, self.jobs.label, _GONE_S)

    def _seen_from_machines(self) -> str:
        """This machine's address on the way to theirs."""
        machine = next(iter(self.slurm.machines(self._settings.partition)), "")
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as way:  # nothing is sent
            try:
                way.connect((self.slurm.address(machine), _DISCARD))
            except OSError as error:
                raise SlurmError(f"no way leads from here to {machine or 'any machine'} ({error}): say in `address` "
                                 f"where jobs find this machine") from error
            return str(way.getsockname()[0])

    def _folder_there(self, state: str) -> str:
        """Return a node's folder of state as its host knows it: below its job's folder, where it is below the run's
        here."""
        folder, run = PurePosixPath(state), self._run.absolute()
        return str(folder.relative_to(run)) if folder.is_relative_to(run) else str(folder)

    # -- nodes ---------------------------------------------------------------------------------------------------------

    def _spawn(self, spec: NodeSpec, number: int) -> RemoteProcess | None:
        if (host := self.hosts.for_next(spec, number)) is None:
            return None
        name = f"{spec.name}.{number}"
        hand = StepHand(name, host, partial(self.jobs.signal, host))
        return RemoteProcess(name, host, hand, partial(self._start, spec, number), spec.epoch)

    def _start(self, spec: NodeSpec, number: int, process: RemoteProcess) -> None:
        """Have its agent start it; called in the host's thread."""
        inside = self.jobs.begun(process.host).folder
        if (program := spec.program) is not None:
            started = self._remote.started(spec, program, number, process)
            argv, env, cwd = started.argv, started.env, started.cwd
        else:
            process.ahead = process.host.clock.best(time.monotonic()).ahead
            filled = spec.command(number, python=self._settings.python, host=self._addresses.found_at(spec.name),
                                  listen=self.nodes.ports.get(spec.name, 0), ahead=process.ahead,
                                  connect=self.links.addresses.get(spec.name, ""))
            argv = [inside if part == str(self._run) else part for part in filled]
            env, cwd = OURS, ""
        if spec.name in self.nodes.ports and number > spec.incarnation:
            self._lead_to(spec.name)
        argv, file = launched(inside, process.name, self._settings.cpus, argv)
        process.agent.ask("spawn", name=process.name, argv=argv, env=env, cwd=cwd, pid_in=file)

    def _lead_to(self, node: str) -> None:
        """Lead every link to a node to where it is now: its job may be on another machine than before."""
        upstream = f"{self._addresses.found_at(node)}:{self.nodes.ports[node]}"
        with self.links.lock:
            for other in list(self.nodes.values()):
                program = other.spec.program
                for link in (link for link, to in other.spec.links.items() if to == node):
                    if program is None or node in program.talks_to:
                        self._server.control.lead(link, upstream)


class Requeues:
    """Implements `diloco_chaos.harness.places.capabilities.Jobs`."""

    def __init__(self, jobs: QueuedJobs, nodes: Nodes[RemoteProcess]) -> None:
        self._jobs, self._nodes = jobs, nodes

    def requeue(self, node: str, restart_after: float | None) -> None:
        """The node starts again once its job does."""
        current = self._nodes[node]
        host = current.process.host
        if not current.alive or host.lost:
            return
        current.expect_exit(restart_after)
        host.leaving = True
        self._jobs.requeue(host)
