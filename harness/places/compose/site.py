"""A run in containers: docker-compose.yml's services, one run's own networks and volumes, the real Toxiproxy.

Nodes listen inside an internal network; every link goes through Toxiproxy, which has a second network, where the
harness reaches it. The run's folder is a named volume at the same path as outside: the tape is followed as on local.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from docker.types import Mount

from diloco_chaos.harness.base.processes import TOKEN, Identity
from diloco_chaos.harness.links.client import LinkError
from diloco_chaos.harness.places.base import ClusterError, NodeSpec, Recorder
from diloco_chaos.harness.places.catching import Catcher
from diloco_chaos.harness.places.commands import CaughtLinks, PlaceCommands, meets, must_have_caught
from diloco_chaos.harness.places.compose import compose_file
from diloco_chaos.harness.places.compose.addresses import ANY, LISTEN, PYTHON, ContainerAddresses
from diloco_chaos.harness.places.compose.container import ContainerProcess
from diloco_chaos.harness.places.compose.container_faults import (
    ContainerHangs,
    ContainerMemory,
    ContainerNetwork,
    ContainerProcesses,
)
from diloco_chaos.harness.places.compose.engine import DockerEngine, EngineError
from diloco_chaos.harness.places.compose.engine_restart import EngineRestart
from diloco_chaos.harness.places.compose.outside import Outside
from diloco_chaos.harness.places.compose.project import Project
from diloco_chaos.harness.places.compose.small_disk import SmallDisks
from diloco_chaos.harness.places.compose.toxiproxy import Toxiproxy
from diloco_chaos.harness.places.compose.undos import Containers
from diloco_chaos.harness.places.links.numbered import LinkRestart, NumberedLinks
from diloco_chaos.harness.places.links.run_links import RunLinks
from diloco_chaos.harness.places.local.cuda import CudaFaults
from diloco_chaos.harness.places.local.preloads import CANNOT, LOADS_S, NO_PAGE, Preloads
from diloco_chaos.harness.places.nodes.incarnation import Incarnation
from diloco_chaos.harness.places.nodes.nodes import Nodes, end_of_log, log_of
from diloco_chaos.harness.places.site import Site
from diloco_chaos.harness.places.stacks.taking import take, write
from diloco_chaos.harness.preload.library import PRELOADED
from diloco_chaos.harness.record.tape.events import Warning
from diloco_chaos.harness.record.undo_log import OpenUndos, UndoLog
from diloco_chaos.harness.trainers.core.programs import LINKS, Program
from diloco_chaos.harness.trainers.wire.echo import EchoServer
from diloco_chaos.harness.trainers.wire.probe import probe

_SERVICES = {True: "syncer", False: "learner-1"}  # listens -> whose service of the compose file says what it may use
_CATCHES, _CATCHES_AT = "catches", "/run/diloco-chaos"
"""What catches connections: its folder in the run's, and where containers find it."""
_PRELOADS_AT = "/run/diloco-chaos.preload"
"""Where containers find what makes their calls fail, and their main threads stand."""
_NOT_LOADED = ("{node}: peers: caught: nothing is caught in its container: its program is linked statically. Take "
               "another image, or leave `peers: caught` out")
_SILENT = ("{link} can't be asked: Toxiproxy's container does not reach this machine at {address}. Does a firewall "
           "keep containers from it? Let in what comes from Docker's networks, or run with --on local")
_UNSEEN = ("where it stands is not told: its container's processes can't be looked at in this machine's /proc. Run "
           "on the engine's own machine, as root or as the user that the container has")


class ComposeSite(Site):
    """See the module."""

    nodes: Nodes[ContainerProcess]

    def __init__(self, run: Path, record: Recorder, undo_log: UndoLog, *, links_port: int = 0, url: str = "") -> None:
        """`links_port`: where Toxiproxy's API is published on 127.0.0.1, 0 for any. `url`: the engine's. The rest: see
        `diloco_chaos.harness.places.place.Place.site`.

        Raises:
            EngineError: there is no engine that can be used.
        """
        (run / "logs").mkdir(parents=True, exist_ok=True)
        self._run, self._record, self._token, self._links_port = run, record, undo_log.token, links_port
        self._undos = OpenUndos(undo_log)
        self._engine = DockerEngine(url)
        self._project = Project(self._engine, run, undo_log.token)
        self.outside = Outside(self._engine, self._project.labels.run, run)
        self._toxiproxy = Toxiproxy(self._project, self.outside)
        self.nodes = Nodes(run, record, undo_log, self._spawn, last_lines=self._last_lines, on_end=self._on_end)
        server = NumberedLinks(lambda: self._toxiproxy.links, LINKS, self._asked_at, self._toxiproxy.pid)
        self.links = RunLinks(server, self.nodes, undo_log)
        self.files = self._disks = SmallDisks(self._project, run, self.nodes)
        self._addresses = ContainerAddresses(self._project, self.nodes, lambda: self._toxiproxy.inside)
        self._network = ContainerNetwork(self._project, self.nodes, self.links, self._addresses)
        self._commands = PlaceCommands(run, self.nodes, self.links, self._addresses)
        self._preloads = Preloads(run, self.nodes, undo_log, _PRELOADS_AT)
        self._hangs = ContainerHangs(self._preloads, self.nodes, undo_log)
        self._cuda = CudaFaults(self._preloads, self.nodes, undo_log)
        self.parts = (self.links, self._disks, self._network, ContainerMemory(self.nodes), EngineRestart(),
                      ContainerProcesses(self.nodes), LinkRestart(self.links, self._toxiproxy.restart),
                      self._preloads, self._hangs, self._cuda)
        self._catcher: Catcher | None = None
        self._echo: EchoServer | None = None

    # -- the beginning -------------------------------------------------------------------------------------------------

    def start(self, nodes: Sequence[NodeSpec]) -> None:
        """Networks, volumes, the links, the nodes that listen, then all others."""
        self._preloads.begin(nodes)
        self._undos.record("everything", Containers, engine=self._engine.url, run=self._project.labels.run)
        self.outside.begin()
        self._project.begin()
        self._toxiproxy.begin(self._links_port)
        if any(spec.program for spec in nodes):
            self._start_commands(nodes)
        else:
            self._start_ours(nodes)
        self._must_have_pages([spec for spec in nodes if spec.preloaded])

    def _start_ours(self, nodes: Sequence[NodeSpec]) -> None:
        for spec in (node for node in nodes if node.listens):
            if spec.disk:
                self._disks.make(spec.disk)
            started = self.nodes.start(spec, spec.incarnation)
            _ = started.process.container  # one that could not be started says so first
            self.nodes.await_listening(spec.name)
        for spec in (node for node in nodes if not node.listens):
            self._started(spec)

    def join(self, node: NodeSpec) -> None:
        """Make the link, start the node."""
        self._preloads.begin([node])
        self._started(node)

    def _started(self, node: NodeSpec) -> None:
        if node.disk:
            raise ClusterError(f"{node.name}: only a node that others connect to can have a disk of its own")
        self.links.make(node.name, f"{node.connects_to}:{LISTEN}")
        self.nodes.start(node, node.incarnation)

    def _start_commands(self, nodes: Sequence[NodeSpec]) -> None:
        if caught := meets(nodes):
            (self._run / _CATCHES).mkdir(exist_ok=True)
            way = CaughtLinks(self.links, self._addresses).way
            self._catcher = Catcher(self._run / _CATCHES, self._token, way, mounted_at=_CATCHES_AT)
        self._echo = EchoServer(self._token, self._project.gateway())
        self._commands.start(nodes, self._echo.address)
        for link in list(self.links.addresses)[:1]:  # links of commands are measured by an echo on this machine
            if not probe(self.links.asked_at(link), self._token).answered:
                raise ClusterError(_SILENT.format(link=link, address=self._echo.address))
        if self._catcher is not None:
            self._must_be_loaded(self._catcher, caught)

    def _must_be_loaded(self, catcher: Catcher, nodes: Sequence[str]) -> None:
        """Check that these nodes have loaded the library: where it is not loaded, nothing is caught, and nothing says
        so."""
        self.outside.wait_for(LOADS_S, lambda: catcher.loaded.issuperset(nodes))
        for name in nodes:
            if name not in catcher.loaded and self.nodes[name].process.ended() is None:
                raise ClusterError(_NOT_LOADED.format(node=name))

    def _must_have_pages(self, nodes: Sequence[NodeSpec]) -> None:
        """Check that these nodes have loaded what is preloaded into them: their image decides that."""
        self.outside.wait_for(LOADS_S, lambda: not any(self._preloads.missing(spec.name) for spec in nodes))
        for spec in nodes:
            if (fault := self._preloads.missing(spec.name)) and self.nodes[spec.name].process.ended() is None:
                raise ClusterError(NO_PAGE.format(node=spec.name, fault=fault, what="container",
                                                  cannot=CANNOT[fault]))

    # -- nodes ---------------------------------------------------------------------------------------------------------

    def _spawn(self, spec: NodeSpec, number: int) -> ContainerProcess:
        if spec.program is None:
            stated = self._project.stated(_SERVICES[spec.listens]) | {"user": self._project.user}
            create = partial(self._made, spec, number, stated)
        else:
            stated = {"user": self._project.user,
                      **compose_file.of_command(spec.program.image, spec.program.service), "init": True}
            create = partial(self._made_of_command, spec, spec.program, number, stated)
        return ContainerProcess(spec.name, self.outside.watch, log_of(self._run, spec.name, number), create,
                                stated.get("cpu_quota", -1), follow=spec.program is not None)

    def _made(self, spec: NodeSpec, number: int, stated: dict[str, Any]) -> Any:
        """Make and start the container of an incarnation; called in the node's own thread."""
        command = spec.command(number, python=PYTHON, host=ANY, listen=LISTEN,
                               connect=self.links.addresses.get(spec.name, ""))
        mounts = [self._project.run_mount(), *self._disks.mounts(spec), *self._preloaded(spec),
                  *(Mount(str(path), str(path), type="bind", read_only=True) for path in spec.reads)]
        return self._project.container(spec.name, f"{spec.name}-{number}", stated, command, mounts=mounts,
                                       env={TOKEN: self._token, **self._preloads.environment(spec.name, "")})

    def _made_of_command(self, spec: NodeSpec, program: Program, number: int, stated: dict[str, Any]) -> Any:
        """The same for somebody's command, with what its image or service says."""
        started = self._commands.started(spec, program, number)
        env = {**stated.pop("environment", {}), **started.env, TOKEN: self._token}
        mounts = [self._project.run_mount(), *stated.pop("mounts", []), *self._preloaded(spec)]
        if self._catcher is not None and program.meets:
            env |= self._catcher.environment(env.get(PRELOADED, ""))
            mounts.append(Mount(_CATCHES_AT, str(self._run / _CATCHES), type="bind", read_only=True))
        env |= self._preloads.environment(spec.name, env.get(PRELOADED, ""))
        if started.cwd:
            stated["working_dir"] = started.cwd
        return self._project.container(spec.name, f"{spec.name}-{number}", stated, started.argv, mounts=mounts, env=env)

    def _preloaded(self, spec: NodeSpec) -> list[Mount]:
        """Return the mount in which a node finds its page, and what is preloaded into it."""
        return [Mount(_PRELOADS_AT, str(self._preloads.folder), type="bind")] if spec.preloaded else []

    def _on_end(self, node: Incarnation[ContainerProcess], status: int) -> None:
        if not (node.expected_exit or status == 0 or node.spec.program):  # a command may end as it likes
            self.outside.must_have_ended_by_itself(node.name, node.process.id)

    def _last_lines(self, name: str, number: int) -> str:
        if (node := self.nodes.get(name)) is not None and node.number == number and not node.spec.program:
            self._quietly(node.process.log.save)
        return end_of_log(self._run, name, number)

    def _asked_at(self, address: str) -> str:
        return f"{self._toxiproxy.host}:{address.rpartition(':')[2]}"

    # -- what goes on --------------------------------------------------------------------------------------------------

    def poll(self) -> None:
        """Notice deaths, restart what is due; and what others do to our containers, or to the engine."""
        try:
            self._poll()
        except EngineError as error:
            if self.outside.has_gone():
                raise self.outside.went_away() from error
            raise

    def _poll(self) -> None:
        self.outside.must_be_there()
        now = time.monotonic()
        for node in self.nodes.everyone():
            node.process.sample(now)
            self.outside.must_be_left_alone(node.name, node.process.id)
        must_have_caught(self._catcher)
        super().poll()
        self._toxiproxy.must_live()

    def residue(self) -> list[str]:
        """Return what every place has left, which nodes are off the network, what fills the small disk, and what still
        holds in processes."""
        return [*super().residue(), *self._network.residue(), *self._disks.residue(), *self._preloads.residue(),
                *self._hangs.residue(), *self._cuda.residue()]

    def dump_stacks(self, nodes: Collection[str]) -> None:
        """Write them to files in the run's folder, too, of those processes that carry the run's token on this
        machine."""
        standing: dict[str, list[Identity]] = {}
        for node in self.nodes.values():
            if node.name in nodes and node.alive:
                with suppress(ClusterError):  # the engine does not answer: then nothing is seen
                    standing[f"{node.name}.{node.number}"] = []
                    standing[f"{node.name}.{node.number}"] = node.process.all_of_it()
        with suppress(OSError):  # what is judged has no need of them
            write(self._run, take(standing, self._token, unseen=_UNSEEN))
        super().dump_stacks(nodes)

    # -- the end -------------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """SIGTERM, SIGKILL after two seconds, and everything is removed. Where the engine does not answer, that stays
        owed: the reaper does it once the engine is back."""
        if self._catcher is not None:
            self._catcher.close()
        self.outside.over()
        self.nodes.end((ClusterError, LinkError, OSError), lambda why: self._record(Warning(reason=why)))
        self.outside.close()
        self._preloads.end()
        if self._echo is not None:
            self._echo.close()
            self._echo = None
        if "everything" in self._undos and self._quietly(self._project.remove):
            self._undos.complete("everything")
        self._engine.close()

    def _quietly(self, act: Callable[[], object]) -> bool:
        """Try to do something; return whether it could be done. Where it could not, removal does what is needed."""
        try:
            act()
        except (ClusterError, LinkError, OSError) as error:
            self._record(Warning(reason=str(error)))
            return False
        return True
