"""The cluster in containers: docker-compose.yml's services, one run's own networks and volumes, the real Toxiproxy.

Nodes listen inside an internal network; every link goes through Toxiproxy, which has a second network, where the
harness reaches it. The run's folder is a named volume at the same path as outside: the tape is followed as on local.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from docker.types import EndpointConfig, Mount
from docker.types.healthcheck import Healthcheck

from harness import tape
from harness.cluster import composefile
from harness.cluster.base import ENGINE_RESTART, ClusterError, NodeSpec, Recorder
from harness.cluster.container import Node
from harness.cluster.engine import Engine, EngineError, Labels, Watch, asked
from harness.cluster.incarnation import STOP_TIMEOUT_S
from harness.cluster.linkserver import free_port
from harness.cluster.supervised import START_TIMEOUT_S, SupervisedCluster
from harness.ledger import Containers, Ledger
from harness.links.client import LinkError, Links
from harness.processes import TOKEN

TOXIPROXY = "toxiproxy"
_DISK = "disk"
_LISTEN, _FIRST_LINK, _API = 7000, 7001, 8474
_SERVICES = {True: "syncer", False: "learner-1"}  # listens -> whose service of the compose file says what it may use
_NOBODY = 10001
_TRIES = 3
_HEADROOM = 12 << 20
_HOW = "build it (docker build -f docker/Dockerfile -t {image} .), or without a registry: docker/offline.sh"


class ComposeCluster(SupervisedCluster[Node]):
    """Implements `harness.cluster.base.Cluster`."""

    def __init__(self, run: Path, record: Recorder, ledger: Ledger, *, links_port: int = 0, node_digest: str = "",
                 url: str = "") -> None:
        """`links_port`: where Toxiproxy's API is published on 127.0.0.1, 0 for any. `node_digest`: what nodes must say
        of their sources, empty for anything. `url`: the engine's. The rest: see `SupervisedCluster`.

        Raises:
            EngineError: there is no engine that can be used.
        """
        super().__init__(run, record, ledger)
        self._links_port, self._node_digest = links_port, node_digest
        self._file = composefile.find()
        self._engine = Engine(url)
        self._labels = Labels(ledger.token, run.name.lower())
        self._watch: Watch | None = None
        self._networks: dict[str, Any] = {}
        self._toxiproxy: Any = None
        self._keeper: Any = None
        self._upstreams: dict[str, str] = {}  # link -> the node behind it
        self._ports: dict[str, int] = {}
        self._api: Links | None = None
        self._owes: int | None = None
        self._user = _user(run)

    # -- the beginning -------------------------------------------------------------------------------------------------

    def start(self, nodes: Sequence[NodeSpec]) -> None:
        """Networks, volumes, the links, the nodes that listen, then all others."""
        self._owes = self._ledger.owe(Containers, engine=self._engine.url, run=self._labels.run)
        self._watch = Watch(self._engine, self._labels.run)
        with asked("make the run's networks and volumes"):
            for name, internal in (("training", True), ("outside", False)):
                self._networks[name] = self._engine.client.networks.create(
                    f"{self._labels.project}_{name}", driver="bridge", internal=internal, labels=self._labels.of())
            self._volume("run", type="none", o="bind", device=str(self._run))
        self._start_toxiproxy()
        for spec in (node for node in nodes if node.listens):
            self._small_disk(spec)
            self._spawn(spec, 0)
            self._listening_port(spec.name)
            self._same_sources(spec.name)
        for spec in (node for node in nodes if not node.listens):
            self.join(spec)

    def join(self, node: NodeSpec) -> None:
        """Make the link, start the node."""
        self._ports[node.name] = _FIRST_LINK + len(self._ports)
        self._upstreams[node.name] = f"{node.connects_to}:{_LISTEN}"
        self._make_link(node.name)
        self._spawn(node, 0)

    def poll(self) -> None:
        """Notice deaths, restart what is due; and what others do to our containers, or to the engine."""
        now = time.monotonic()
        if self._watch is not None and self._watch.broken:
            raise EngineError(f"the Docker engine went away in the middle of the run ({self._watch.broken}), and its "
                              f"containers with it. Kept: the tape, the checkpoints and the snapshots in {self._run}; "
                              f"lost: what the learners had not given to a merge")
        for node in self._everyone():
            node.sample(now)
            if meddled := node.meddled():
                raise ClusterError(f"{node.name}'s container was {meddled} from outside: did somebody type `docker "
                                   f"compose down`, or `docker stop`?")
        super().poll()
        if self._watch is not None and self._toxiproxy is not None and self._toxiproxy.id in self._watch.exits:
            raise ClusterError(f"Toxiproxy died on its own:\n{self._tail(self._toxiproxy)}")

    def _spawn(self, spec: NodeSpec, number: int) -> None:
        assert self._watch is not None, "the cluster was started"
        log = self._run / "logs" / f"{spec.name}.{number}.log"
        self._nodes[spec.name] = Node(spec, number, self._ledger, self._watch, log, partial(self._made, spec, number))
        self._record("spawn", target=spec.name, incarnation=number)

    def _made(self, spec: NodeSpec, number: int) -> Any:
        """Make and start the container of an incarnation; called in the node's own thread."""
        connect = f"{TOXIPROXY}:{self._ports[spec.name]}" if spec.connects_to else ""
        command = spec.command(number, python="python3", host="0.0.0.0", listen=_LISTEN, connect=connect)  # noqa: S104
        mounts = [self._mount("run", self._run)]
        mounts += [Mount(str(path), str(path), type="bind", read_only=True) for path in spec.reads]
        if spec.disk:
            mounts.append(self._mount(_DISK, self._run / spec.state))
        stated = composefile.service(self._file, _SERVICES[spec.listens])
        return self._container(spec.name, f"{spec.name}-{number}", stated | {"user": self._user}, command, mounts,
                               {TOKEN: self._ledger.token, **spec.env})

    def _container(self, service: str, name: str, stated: dict[str, Any], command: list[str], mounts: list[Mount],
                   env: dict[str, str], networks: Sequence[str] = ("training",), **more: Any) -> Any:
        with asked(f"start {service}"):
            container = self._engine.client.containers.create(
                **stated, name=f"{self._labels.project}-{name}", entrypoint=command[:1], command=command[1:],
                environment=env, mounts=mounts, labels=self._labels.of(service),
                healthcheck=Healthcheck(test=["NONE"]), network=self._networks[networks[0]].name,
                networking_config={self._networks[networks[0]].name: EndpointConfig(
                    self._engine.client.api.api_version, aliases=[service])}, **more)
            for further in networks[1:]:
                self._networks[further].connect(container)
            container.start()
            return container

    def _listening_port(self, name: str) -> int:
        """As everywhere; but a container that could not be started says so first."""
        _ = self._nodes[name].container
        return super()._listening_port(name)

    def _same_sources(self, name: str) -> None:
        for event in tape.read(self._run / "tape").of("start", node=name):
            if self._node_digest and event.fields.get("sources") != self._node_digest:
                raise ClusterError("the image holds another version of the trainer than this installation; build it "
                                   "again (docker build -f docker/Dockerfile ., or docker/offline.sh)")

    def _volume(self, name: str, **options: str) -> None:
        self._engine.client.volumes.create(f"{self._labels.project}_{name}", driver="local", driver_opts=options,
                                           labels=self._labels.of())

    def _mount(self, volume: str, target: Path) -> Mount:
        return Mount(str(target), f"{self._labels.project}_{volume}", type="volume")

    # -- links ---------------------------------------------------------------------------------------------------------

    def _start_toxiproxy(self) -> None:
        """It gets a port that is free now; another one where somebody was quicker, unless the user named it."""
        for attempt in range(_TRIES):
            port = self._links_port or free_port()
            stated = composefile.service(self._file, TOXIPROXY)
            try:
                self._toxiproxy = self._container(
                    TOXIPROXY, f"{TOXIPROXY}-{attempt}", stated, ["/toxiproxy", "-host=0.0.0.0"], [], {},
                    networks=("training", "outside"), ports={f"{_API}/tcp": ("127.0.0.1", port)})
                break
            except EngineError as error:
                if "port is already allocated" not in str(error) and "address already in use" not in str(error):
                    raise
                if self._links_port or attempt == _TRIES - 1:
                    raise EngineError(f"port {port} on 127.0.0.1 is taken: choose another one with --toxiproxy-port, "
                                      f"or leave it out for any") from error
        self._api = Links(f"127.0.0.1:{port}")
        self._wait_for_links()

    def _wait_for_links(self) -> None:
        until = time.monotonic() + START_TIMEOUT_S
        while True:
            try:
                self._links().version()
                break
            except LinkError as error:
                if time.monotonic() > until or (self._watch and self._toxiproxy.id in self._watch.exits):
                    raise EngineError(f"Toxiproxy did not start:\n{self._tail(self._toxiproxy)}") from error
                time.sleep(0.01)
        with asked("look at Toxiproxy"):
            self._toxiproxy.reload()
        outside = self._toxiproxy.attrs["NetworkSettings"]["Networks"][self._networks["outside"].name]["IPAddress"]
        self._addresses = {link: f"{outside}:{port}" for link, port in self._ports.items()}
        self._host = outside

    def _make_link(self, link: str) -> None:
        self._links().create(link, self._upstreams[link], listen=f"0.0.0.0:{self._ports[link]}")
        self._addresses[link] = f"{self._host}:{self._ports[link]}"

    def _links(self) -> Links:
        if self._api is None:
            raise ClusterError("the links are not up yet")
        return self._api

    # -- what only containers have -------------------------------------------------------------------------------------

    def exhaust_memory(self, node: str, restart_after: float | None) -> None:
        """A limit just above what it uses, and a second process that asks for more: the kernel kills the largest."""
        current = self._nodes[node]
        if not current.alive:
            return
        current.doomed, current.restart_after = True, restart_after
        limit = _anonymous(current.pid) + _HEADROOM
        current.in_background(lambda: current.squeeze(limit))
        current.in_background(lambda: current.execute("python3", "-c", f"b = bytearray({4 * _HEADROOM})"))

    def disconnect(self, node: str, off: bool) -> None:
        """From the internal network, or back to it under its name."""
        network, current = self._networks["training"], self._nodes[node]
        with asked(f"{'disconnect' if off else 'reconnect'} {node}"):
            network.disconnect(current.container) if off else network.connect(current.container, aliases=[node])

    def restart_links(self) -> float:
        """The container is restarted; its links and their toxics were in its memory only."""
        assert self._watch is not None, "the cluster was started"
        began = time.monotonic()
        with asked("restart Toxiproxy"):
            self._toxiproxy.restart(timeout=0)
        self._watch.exits.pop(self._toxiproxy.id, None)
        self._watch.meddled.pop(self._toxiproxy.id, None)
        self._wait_for_links()
        for link in self._ports:
            self._make_link(link)
            for toxic in self._toxics.get(link, {}).values():
                self._links().add(link, toxic)
            if link in self._cut:
                self._links().set_enabled(link, False)
        return time.monotonic() - began

    def restart_engine(self) -> None:
        """In a session of its own: it must not end with us."""
        command = shlex.split(os.environ[ENGINE_RESTART])
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                         start_new_session=True)

    # -- a small disk --------------------------------------------------------------------------------------------------

    def _small_disk(self, spec: NodeSpec) -> None:
        """A tmpfs, and a container that keeps it mounted while its node is down."""
        if not spec.disk:
            return
        uid, _, gid = self._user.partition(":")
        with asked("make a small disk"):
            self._volume(_DISK, type="tmpfs", device="tmpfs", o=f"size={spec.disk},uid={uid},gid={gid},mode=0755")
        stated = composefile.service(self._file, "syncer") | {"user": self._user}
        self._keeper = self._container(_DISK, _DISK, stated, ["sleep", "infinity"],
                                       [self._mount(_DISK, Path("/disk"))], {})

    def fill_disk(self, node: str, restart_after: float) -> int:
        """Write zeros until there is no space."""
        current = self._nodes[node]
        current.doomed, current.restart_after = True, restart_after
        self._in_keeper("cat /dev/zero > /disk/.filling")
        return int(self._in_keeper("stat -c %s /disk/.filling"))

    def empty_disk(self, node: str) -> None:
        """Remove them."""
        self._in_keeper("rm -f /disk/.filling")
        current = self._nodes[node]
        current.doomed = current.doomed and not current.alive

    def state_files(self, node: str) -> dict[str, int]:
        """On a small disk they are seen through the container that keeps it."""
        if not self._nodes[node].spec.disk:
            return super().state_files(node)
        listed = (line.partition(" ") for line in self._in_keeper("stat -c '%s %n' /disk/*").splitlines())
        return {Path(name).name: int(size) for size, _, name in listed if size.isdigit()}

    def _in_keeper(self, command: str) -> str:
        if self._keeper is None:
            raise ClusterError("no node of this run has a small disk")
        with asked("use the small disk"):
            return str(self._keeper.exec_run(["sh", "-c", command]).output.decode(errors="replace").strip())

    # -- the end -------------------------------------------------------------------------------------------------------

    def residue(self) -> list[str]:
        """As everywhere, and who is off the network, and what fills the small disk."""
        left = super().residue()
        for node in self._nodes.values():
            if node.alive:
                with asked(f"look at {node.name}"):
                    node.container.reload()
                networks = node.container.attrs["NetworkSettings"]["Networks"]
                left += [] if self._networks["training"].name in networks else [f"{node.name} is off the network"]
        if self._keeper is not None and self._in_keeper("ls /disk/.filling 2>&1 || true").startswith("/disk/"):
            left.append("the small disk is full")
        return left

    def stop(self) -> None:
        """SIGTERM, SIGKILL after two seconds, and everything is removed. Where the engine does not answer, that stays
        owed: the reaper does it once the engine is back."""
        if self._watch is not None:
            self._watch.close()
        for node in self._everyone():
            self._quietly(node.stop)
        until = time.monotonic() + STOP_TIMEOUT_S
        for node in self._everyone():
            node.reap(until)
        if self._owes is not None and self._quietly(lambda: self._engine.remove(self._labels.run)):
            self._ledger.done(self._owes)
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

    def _tail(self, container: Any, lines: int = 12) -> str:
        with asked("read a container's log"):
            text = container.logs(tail=lines).decode(errors="replace").splitlines()
        return "\n".join(f"  {line}" for line in text) or "  (its log is empty)"


def must_be_ready(url: str = "") -> None:
    """Tell before anything starts what is missing.

    Raises:
        EngineError: there is no engine that can be used, or an image is not there.
    """
    engine, file = Engine(url), composefile.find()
    try:
        for service in ("syncer", TOXIPROXY):
            image = composefile.service(file, service)["image"]
            engine.image(image, _HOW.format(image=image))
    finally:
        engine.close()


def _user(run: Path) -> str:
    """Who nodes run as: us; and nobody in particular where we are root, so that the run's folders become theirs."""
    if os.getuid() != 0:
        return f"{os.getuid()}:{os.getgid()}"
    for name in ("tape", "state", "snapshots"):
        (run / name).mkdir(exist_ok=True)
        os.chown(run / name, _NOBODY, _NOBODY)
    return f"{_NOBODY}:{_NOBODY}"


def _anonymous(pid: int) -> int:
    """Bytes of memory that a process has for itself: what the kernel can't take back."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) << 10
    raise ClusterError(f"process {pid} has no memory of its own: it is gone")



