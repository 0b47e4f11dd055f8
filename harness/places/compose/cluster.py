"""The cluster in containers: docker-compose.yml's services, one run's own networks and volumes, the real Toxiproxy.

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

from diloco_chaos.harness.base.fingerprint import node_digest
from diloco_chaos.harness.base.processes import TOKEN
from diloco_chaos.harness.links.client import LinkError, Links
from diloco_chaos.harness.places.base import ClusterError, NodeSpec, Recorder
from diloco_chaos.harness.places.catching import Catcher
from diloco_chaos.harness.places.commanded import CommandCluster, meets
from diloco_chaos.harness.places.compose import compose_file, engine_restart
from diloco_chaos.harness.places.compose.container import Node
from diloco_chaos.harness.places.compose.engine import Engine, EngineError, Watch
from diloco_chaos.harness.places.compose.project import Project
from diloco_chaos.harness.places.compose.small_disk import SmallDisk
from diloco_chaos.harness.places.compose.toxiproxy import Toxiproxy
from diloco_chaos.harness.places.compose.undos import Containers
from diloco_chaos.harness.places.incarnation import STOP_TIMEOUT_S
from diloco_chaos.harness.places.sockets import takes
from diloco_chaos.harness.record.undo_log import UndoLog
from diloco_chaos.harness.trainers.core.programs import LINKS, Program, Service
from diloco_chaos.harness.trainers.wire.probe import probe

_LISTEN, _FIRST_LINK = 7000, 7001
_SERVICES = {True: "syncer", False: "learner-1"}  # listens -> whose service of the compose file says what it may use
_MEDDLED_S, _ENGINE_ENDS_S, _LOADS_S = 1.0, 5.0, 10.0
_HEADROOM = 12 << 20
_BUILD = "docker build -f docker/Dockerfile -t {image} ., or without a registry: docker/offline.sh"
_SOURCES = "/app/sources"  # see docker/Dockerfile
_PULL = "docker pull {image}, or without a registry: docker/offline.sh"
_ANY = "0.0.0.0"  # noqa: S104 - of a container's own network, which is internal
_FOR_COMMANDS: dict[str, Any] = {"cap_drop": ["ALL"], "security_opt": ["no-new-privileges:true"]}
_CATCHES, _CATCHES_AT = "catches", "/run/diloco-chaos"
"""What catches connections: its folder in the run's, and where containers find it."""
_NOT_LOADED = ("{node}: peers: caught: nothing is caught in its container: its program is linked statically. Take "
               "another image, or leave `peers: caught` out")
_SILENT = ("{link} can't be asked: Toxiproxy's container does not reach this machine at {address}. Does a firewall "
           "keep containers from it? Let in what comes from Docker's networks, or run with --on local")


class ComposeCluster(CommandCluster[Node]):
    """Implements `diloco_chaos.harness.places.base.Cluster`."""

    def __init__(self, run: Path, record: Recorder, undo_log: UndoLog, *, links_port: int = 0, url: str = "") -> None:
        """`links_port`: where Toxiproxy's API is published on 127.0.0.1, 0 for any. `url`: the engine's. The rest: see
        `SupervisedCluster`.

        Raises:
            EngineError: there is no engine that can be used.
        """
        super().__init__(run, record, undo_log)
        (run / "logs").mkdir(parents=True, exist_ok=True)
        self._links_port = links_port
        self._engine = Engine(url)
        self._project = Project(self._engine, run, undo_log.token)
        self._watch: Watch | None = None
        self._toxiproxy: Toxiproxy | None = None
        self._disk: SmallDisk | None = None
        self._upstreams: dict[str, str] = {}  # side of a link -> what is behind it
        self._ports: dict[str, int] = {}  # side of a link -> Toxiproxy's port for it
        self._owes: int | None = None
        self._hosts: dict[str, tuple[int, str]] = {}  # node -> (incarnation, its address among the nodes)

    # -- the beginning -------------------------------------------------------------------------------------------------

    def start(self, nodes: Sequence[NodeSpec]) -> None:
        """Networks, volumes, the links, the nodes that listen, then all others."""
        self._owes = self._undo_log.record(Containers, engine=self._engine.url, run=self._project.labels.run)
        self._watch = Watch(self._engine, self._project.labels.run)
        self._project.begin()
        self._toxiproxy = Toxiproxy(self._project, self._links_port, self._watch.exits)
        if caught := meets(nodes):
            (self._run / _CATCHES).mkdir(exist_ok=True)
            self._catcher = Catcher(self._run / _CATCHES, self._undo_log.token, self._way, there=_CATCHES_AT)
        if any(spec.program for spec in nodes):
            self._start_commands(nodes, self._project.gateway())
            self._must_be_heard()
            self._must_be_loaded(caught)
            return
        for spec in (node for node in nodes if node.listens):
            if spec.disk:
                self._disk = SmallDisk(self._project, spec.disk)
            self._spawn(spec, spec.incarnation)
            _ = self._nodes[spec.name].container  # one that could not be started says so first
            self._listening_port(spec.name)
        for spec in (node for node in nodes if not node.listens):
            self.join(spec)

    def join(self, node: NodeSpec) -> None:
        """Make the link, start the node."""
        if node.disk:
            raise ClusterError(f"{node.name}: only a node that others connect to can have a disk of its own")
        self._addresses[node.name] = self._proxy(node.name, f"{node.connects_to}:{_LISTEN}")
        self._spawn(node, node.incarnation)

    def _spawn(self, spec: NodeSpec, number: int) -> None:
        assert self._watch is not None, "the cluster was started"
        log = self._run / "logs" / f"{spec.name}.{number}.log"
        if spec.program is None:
            stated = self._project.stated(_SERVICES[spec.listens]) | {"user": self._project.user}
            create = partial(self._made, spec, number, stated)
        else:
            stated = {"user": self._project.user, **_stated(spec.program.image, spec.program.service), "init": True}
            create = partial(self._made_of_command, spec, spec.program, number, stated)
        self._nodes[spec.name] = Node(spec, number, self._undo_log, self._watch, log, create,
                                      stated.get("cpu_quota", -1))
        self._record("spawn", target=spec.name, incarnation=number)

    def _made(self, spec: NodeSpec, number: int, stated: dict[str, Any]) -> Any:
        """Make and start the container of an incarnation; called in the node's own thread."""
        command = spec.command(number, python="python3", host=_ANY, listen=_LISTEN,
                               connect=self._addresses.get(spec.name, ""))
        mounts = [self._project.run_mount(),
                  *(Mount(str(path), str(path), type="bind", read_only=True) for path in spec.reads)]
        if spec.disk and self._disk is not None:
            mounts.append(self._disk.mount(self._run / spec.state))
        return self._project.container(spec.name, f"{spec.name}-{number}", stated, command, mounts=mounts,
                                       env={TOKEN: self._undo_log.token})

    # -- nodes that are commands ---------------------------------------------------------------------------------------

    def _made_of_command(self, spec: NodeSpec, program: Program, number: int, stated: dict[str, Any]) -> Any:
        """The same for somebody's command, with what its image or service says."""
        started = self._started(spec, program, number)
        env = {**stated.pop("environment", {}), **started.env, TOKEN: self._undo_log.token}
        mounts = [self._project.run_mount(), *stated.pop("mounts", [])]
        if self._catcher is not None and program.meets:
            env |= self._catcher.environment(env.get("LD_PRELOAD", ""))
            mounts.append(Mount(_CATCHES_AT, str(self._run / _CATCHES), type="bind", read_only=True))
        if started.cwd:
            stated["working_dir"] = started.cwd
        return self._project.container(spec.name, f"{spec.name}-{number}", stated, started.argv, mounts=mounts, env=env)

    def _must_be_heard(self) -> None:
        """Links of commands are measured by an echo on this machine."""
        for link in list(self._echoes)[:1]:
            if self._echo is not None and not probe(self.address(link), self._undo_log.token).answered:
                raise ClusterError(_SILENT.format(link=link, address=self._echo.address))

    def _must_be_loaded(self, nodes: Collection[str]) -> None:
        """Where the library is not, nothing is caught, and nothing says so."""
        if self._catcher is None:
            return
        loaded = self._catcher.loaded
        self._wait_for(_LOADS_S, lambda: loaded.issuperset(nodes))
        for name in nodes:
            if name not in loaded and self._nodes[name].ended() is None:
                raise ClusterError(_NOT_LOADED.format(node=name))

    def _listener(self, host: str, port: int) -> str:
        return next((node.name for node in self._nodes.values() if node.alive and self._host_of(node) == host
                     and takes(node.pid, port) is not False), "")

    def _host_of(self, node: Node) -> str:
        """Where other nodes find it by number; empty while it is off their network."""
        number, address = self._hosts.get(node.name, (-1, ""))
        if number != node.incarnation or not address:
            address = self._project.address(node.container)
            self._hosts[node.name] = node.incarnation, address
        return address

    def _met_at(self, address: str) -> str:
        assert self._toxiproxy is not None, "there are no links before `start`"
        return f"{self._toxiproxy.inside}:{address.rpartition(':')[2]}"

    def _port_for(self, spec: NodeSpec, program: Program) -> int:
        return program.port or _LISTEN  # each has a network address of its own

    def _found_at(self, node: str) -> str:
        return node

    def _seen_at(self, node: str) -> tuple[str, int]:
        return self._project.address(self._nodes[node].container), self._listens.get(node, 0)

    def _link_server(self) -> int:
        return self._toxiproxy.pid if self._toxiproxy is not None else 0

    def carried(self, links: Sequence[str]) -> int | None:
        """Nothing is known of it: Toxiproxy counts connections that have ended."""
        return None

    def _place(self) -> dict[str, str]:
        return {"python": "python3", "host": _ANY}

    # -- what goes on --------------------------------------------------------------------------------------------------

    def poll(self) -> None:
        """Notice deaths, restart what is due; and what others do to our containers, or to the engine."""
        assert self._watch is not None, "the cluster was started"
        try:
            self._poll(self._watch)
        except EngineError as error:
            if self._watch.broken or not self._engine.answers():
                raise self._went_away() from error
            raise

    def _poll(self, watch: Watch) -> None:
        if watch.broken:
            raise self._went_away()
        now = time.monotonic()
        for node in self._everyone():
            node.sample(now)
            self._left_alone(node.name, node.meddled())
        super().poll()
        if self._toxiproxy is not None and watch.exits.pop(self._toxiproxy.id, None) is not None \
                and not self._toxiproxy.runs():  # else it is the end before our own restart that was told
            container = self._toxiproxy.id
            self._somebody_else(LINKS, lambda: watch.meddled.get(container, ""))
            raise ClusterError(f"Toxiproxy died on its own:\n{self._toxiproxy.last_lines()}")

    def _went_away(self) -> EngineError:
        return EngineError(f"the Docker engine went away in the middle of the run, and its containers with it. Kept: "
                           f"the tape, the checkpoints and the snapshots in {self._run}")

    def _left_alone(self, name: str, meddled: str) -> None:
        """Raises where somebody else ended a container: whoever typed that, or the engine, before it ends itself."""
        if not meddled:
            return
        self._wait_for(_ENGINE_ENDS_S, lambda: False)
        raise ClusterError(f"{name}'s container was {meddled} from outside: did somebody type `docker compose "
                           f"down`, or `docker stop`?")

    def _somebody_else(self, name: str, meddled: Callable[[], str]) -> None:
        """A container ended: the engine tells a moment later whether somebody else brought it about."""
        self._wait_for(_MEDDLED_S, lambda: bool(meddled()))
        self._left_alone(name, meddled())

    def _wait_for(self, seconds: float, condition: Callable[[], bool]) -> None:
        """Until then, or until the engine has gone, which is raised."""
        until = time.monotonic() + seconds
        while time.monotonic() < until and not condition():
            if self._watch is not None and self._watch.broken:
                raise self._went_away()
            time.sleep(0.02)

    def _gone(self, node: Node, status: int) -> None:
        if not (node.expected_exit or status == 0 or node.spec.program):  # a command may end as it likes
            self._somebody_else(node.name, node.meddled)
        super()._gone(node, status)

    def _last_lines(self, name: str, incarnation: int, count: int = 12) -> str:
        if (node := self._nodes.get(name)) is not None and node.incarnation == incarnation and not node.spec.program:
            self._quietly(node.save_log)
        return super()._last_lines(name, incarnation, count)

    # -- links ---------------------------------------------------------------------------------------------------------

    def _proxy(self, side: str, upstream: str) -> str:
        self._ports[side], self._upstreams[side] = _FIRST_LINK + len(self._ports), upstream
        self._make(side)
        return f"{LINKS}:{self._ports[side]}"

    def _asked_at(self, address: str) -> str:
        assert self._toxiproxy is not None, "there are no links before `start`"
        return f"{self._toxiproxy.host}:{address.rpartition(':')[2]}"

    def _make(self, side: str) -> None:
        self._links().create(side, self._upstreams[side], listen=f"{_ANY}:{self._ports[side]}",
                             enabled=side not in self._disabled)

    def _links(self) -> Links:
        if self._toxiproxy is None:
            raise ClusterError("the links are not up yet")
        return self._toxiproxy.links

    def restart_links(self) -> float:
        """The container is restarted, and gets its links and their toxics again."""
        assert self._toxiproxy is not None, "there are no links before `start`"
        began = time.monotonic()
        with self._linking:
            self._toxiproxy.restart()
            for side in self._ports:
                self._make(side)
                for toxic in self._toxics.get(side, {}).values():
                    self._links().add(side, toxic)
        return time.monotonic() - began

    # -- what processes do not have ------------------------------------------------------------------------------------

    def exhaust_memory(self, node: str, restart_after: float | None) -> None:
        """A limit just above what it uses, and a second process that asks for more: the kernel kills the largest."""
        current = self._nodes[node]
        used = _anonymous(current.pid) if current.alive else None
        if used is None:
            return  # it is gone: nothing is taken from it
        current.expected_exit, current.restart_after = True, restart_after
        limit = used + _HEADROOM
        current.in_background(lambda: current.squeeze(limit))
        current.in_background(lambda: current.execute("python3", "-c", f"b = bytearray({4 * _HEADROOM})"))

    def disconnect(self, node: str, off: bool) -> None:
        """From the internal network, or back to it under its name."""
        with self._linking:
            self._hosts.pop(node, None)  # it may get another one
            self._project.attach(self._nodes[node].container, node, not off)

    def fill_disk(self, node: str, restart_after: float) -> int:
        """Write zeros until there is no space."""
        self._expect_no_space(node, restart_after)
        return self._small_disk().fill()

    def empty_disk(self, node: str) -> None:
        """Remove them."""
        self._small_disk().empty()
        self._disk_full.pop(node, None)
        if self._nodes[node].alive:
            self._nodes[node].clear_expected_exit()

    def _small_disk(self) -> SmallDisk:
        if self._disk is None:
            raise ClusterError("no node of this run has a small disk")
        return self._disk

    def restart_engine(self) -> None:
        """By the user's command."""
        engine_restart.begin()

    # -- state ---------------------------------------------------------------------------------------------------------

    def state_files(self, node: str) -> dict[str, int]:
        """On a small disk they are seen through the container that keeps it."""
        return self._small_disk().files() if self._nodes[node].spec.disk else super().state_files(node)

    def alter(self, node: str, name: str, change: Callable[[bytes], bytes | None]) -> None:
        """On a small disk they are rewritten through the container that keeps it."""
        if self._nodes[node].spec.disk:
            self._small_disk().alter(name, change)
        else:
            super().alter(node, name, change)

    # -- the end -------------------------------------------------------------------------------------------------------

    def residue(self) -> list[str]:
        """As everywhere, and who is off the network, and what fills the small disk."""
        left = super().residue()
        left += [f"{node.name} is off the network" for node in self._nodes.values()
                 if node.alive and not self._project.attached(node.container)]
        return left + (["the small disk is full"] if self._disk is not None and self._disk.filled else [])

    def stop(self) -> None:
        """SIGTERM, SIGKILL after two seconds, and everything is removed. Where the engine does not answer, that stays
        owed: the reaper does it once the engine is back."""
        self._close_catcher()
        if self._watch is not None:
            self._watch.over()
        for node in self._everyone():
            self._quietly(node.stop)
        until = time.monotonic() + STOP_TIMEOUT_S
        for node in self._everyone():
            node.reap(until)
        if self._watch is not None:
            self._watch.close()
        self._close_echo()
        if self._owes is not None and self._quietly(self._project.remove):
            self._undo_log.complete(self._owes)
            self._owes = None
        self._engine.close()

    def _quietly(self, act: Callable[[], object]) -> bool:
        """Whether it could be done; where it could not, removal does what is needed."""
        try:
            act()
        except (ClusterError, LinkError, OSError) as error:
            self._record("warning", reason=str(error))
            return False
        return True


def must_be_ready(url: str = "", programs: Collection[Program] = ()) -> None:
    """Tell before anything starts what is missing. `programs`: commands that are to run in images of somebody else's;
    where there are none, the nodes are ours.

    Raises:
        EngineError: there is no engine that can be used, an image is not there, or nodes' image holds another version
            of the trainer than this installation.
        ClusterError: a compose file can't be read, or says what a run can't take over.
    """
    engine, file = Engine(url), compose_file.find()
    ours, links = (compose_file.service(file, name)["image"] for name in ("syncer", LINKS))
    try:
        for image, service in dict.fromkeys((program.image, program.service) for program in programs):
            engine.image(_stated(image, service).get("image", ""), "build it, or `docker pull` it: runs pull nothing")
        engine.image(links, _PULL.format(image=links))
        if not programs:
            _must_be_of_this_version(engine, ours)
    finally:
        engine.close()


def _must_be_of_this_version(engine: Engine, image: str) -> None:
    engine.image(image, _BUILD.format(image=image))
    if (engine.file_of(image, _SOURCES) or b"").decode().strip() != node_digest():
        raise EngineError(f"image {image} holds another version of the trainer than this installation, or none; "
                          f"build it again: {_BUILD.format(image=image)}")


def _stated(image: str, service: Service | None) -> dict[str, Any]:
    """What the container of a command is made with, beside the command."""
    if service is None:
        return {"image": image, **_FOR_COMMANDS}
    stated = compose_file.service(Path(service.file), service.name, foreign=True)
    return stated | ({"image": image} if image else {})


def _anonymous(pid: int) -> int | None:
    """Bytes of memory that a process has for itself, what the kernel can't take back; None where it is gone."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) << 10
    return None
