"""A Docker engine on this machine, through docker-py: everything that is made there carries the run's label.

Nothing without the label is ever touched. Errors say what to do next.
"""

from __future__ import annotations

import io
import os
import platform
import tarfile
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, NamedTuple

import docker
import requests
from docker.errors import APIError, DockerException, ImageNotFound, NotFound
from docker.models.containers import Container
from docker.models.networks import Network
from docker.models.volumes import Volume

from diloco_chaos.harness.base.processes import Identity, identity
from diloco_chaos.harness.places.base import ClusterError
from diloco_chaos.harness.record.undo_log import run_label

RUN, HARNESS = "diloco-chaos.run", "diloco-chaos.harness"
"""Labels: whose it is, and the process of the harness as pid-start."""
_PROJECT, _SERVICE = "com.docker.compose.project", "com.docker.compose.service"
_AS_COMPOSE_MAKES_THEM = {"com.docker.compose.oneoff": "False", "com.docker.compose.container-number": "1",
                          "com.docker.compose.config-hash": "diloco-chaos"}
"""Without these Compose does not take a container for one of its own."""
DEFAULT = "unix:///var/run/docker.sock"
TIMEOUT_S = 30
_OLDEST_API = (1, 40)  # Docker 19.03
_HANDS = 8


class EngineError(ClusterError):
    """The engine can't be used, refused, or went away."""


class Thing(NamedTuple):
    """Something labelled that is on the engine."""

    kind: str
    name: str
    run: str
    harness: str


@contextmanager
def asked(what: str) -> Iterator[None]:
    """Turn what docker-py raises into an error that names what was asked."""
    try:
        yield
    except ImageNotFound as error:
        raise EngineError(f"{what}: {error.explanation or error}") from error
    except APIError as error:
        raise EngineError(f"{what}: the engine says: {error.explanation or error}") from error
    except (DockerException, requests.RequestException, OSError) as error:
        raise EngineError(f"{what}: the Docker engine does not answer ({error})") from error


class DockerEngine:
    """A connection; may be used from any thread."""

    def __init__(self, url: str = "") -> None:
        """`url`: a Unix socket; DOCKER_HOST, or Docker's own default, if none is given.

        Raises:
            EngineError: there is no engine, it may not be used, it is too old, or it is not on this machine.
        """
        self.url = url or os.environ.get("DOCKER_HOST") or DEFAULT
        if not self.url.startswith("unix://"):
            raise EngineError(f"DOCKER_HOST is {self.url}: the engine must run on this machine (its containers share "
                              f"this one's clock and files); unset it, or name a Unix socket")
        self.client = _connected(self.url)
        with asked("look at the engine"):
            info = self.client.info()
        if info.get("KernelVersion") != platform.release():
            raise EngineError(f"the engine at {self.url} runs in a machine of its own (kernel "
                              f"{info.get('KernelVersion')}); it must share this one's: use a native Docker engine")
        if any("rootless" in option for option in info.get("SecurityOptions") or []):
            raise EngineError(f"the engine at {self.url} is rootless: its containers can't be reached from here; use "
                              f"the system's engine (DOCKER_HOST={DEFAULT})")
        self.version = str(info.get("ServerVersion", ""))

    def close(self) -> None:
        """Close the connection."""
        self.client.close()

    def answers(self) -> bool:
        """Return whether the engine answers now."""
        try:
            return bool(self.client.ping())
        except (DockerException, requests.RequestException, OSError):
            return False

    def image(self, name: str, how: str) -> None:
        """Make sure that an image is there.

        Raises:
            EngineError: it is not; with `how` to get it.
        """
        with asked(f"look for {name}"):
            try:
                self.client.images.get(name)
            except ImageNotFound:
                raise EngineError(f"image {name} is not there: {how}") from None

    def file_of(self, image: str, path: str) -> bytes | None:
        """Return a file of an image, by way of a container that is never started; None where there is no such file.

        Raises:
            EngineError: the engine refused.
        """
        with asked(f"look into {image}"):
            container = self.client.containers.create(image, command=["none"], network_mode="none",
                                                      labels=Labels(f"look{os.getpid()}", "look").of())
            try:
                chunks, _ = container.get_archive(path)
                with tarfile.open(fileobj=io.BytesIO(b"".join(chunks))) as archive:
                    file = archive.extractfile(archive.getmembers()[0])
                    return file.read() if file else None
            except NotFound:
                return None
            finally:
                container.remove(v=True)

    # -- what carries a label --------------------------------------------------------------------------------------

    def labelled(self, run: str = "") -> list[Thing]:
        """Return everything that is labelled, of one run, or of all runs where `run` is empty."""
        with asked("list what is labelled"):
            return [_thing(kind, resource) for kind, resources in self._resources(run) for resource in resources]

    def remove(self, run: str) -> list[str]:
        """Remove everything of a run; return a sentence for each thing that was removed.

        Raises:
            EngineError: something is still there.
            ValueError: no run is named: that would remove every run's.
        """
        if not run:
            raise ValueError("name the run that is to be removed")
        with asked("remove what the run left"):
            words = []
            for kind, resources in self._resources(run):
                with ThreadPoolExecutor(_HANDS) as pool:
                    list(pool.map(_removed, resources))
                words += [f"{kind} {_thing(kind, resource).name} removed" for resource in resources]
            return words

    def _resources(self, run: str) -> Iterator[tuple[str, list[Any]]]:
        """Yield each kind with its resources, containers first: what they use can't be removed before them."""
        label: dict[str, Any] = {"label": f"{RUN}={run}" if run else RUN}
        yield "container", self.client.containers.list(all=True, filters=label, ignore_removed=True, sparse=True)
        yield "network", self.client.networks.list(filters=label)
        yield "volume", self.client.volumes.list(filters=label)


class Labels:
    """The labels of one run's things: our own labels, and Compose's, so that `docker compose -p RUN` shows them."""

    def __init__(self, token: str, project: str) -> None:
        self.run, self.project = run_label(token), project
        me = identity(os.getpid())
        self._ours = {RUN: self.run, HARNESS: f"{me.pid}-{me.start}" if me else ""}

    def of(self, service: str = "", **more: str) -> dict[str, str]:
        """Return the labels of a container of this service, or of a network or volume."""
        labels = self._ours | {_PROJECT: self.project} | more
        return labels | {_SERVICE: service} | _AS_COMPOSE_MAKES_THEM if service else labels


class ContainerWatch(threading.Thread):
    """Follows what the engine says about a run's containers, from its own start on."""

    def __init__(self, engine: DockerEngine, run: str) -> None:
        super().__init__(daemon=True, name="engine-watch")
        self.exits: dict[str, int] = {}
        """Container id -> exit code."""
        self.out_of_memory: set[str] = set()
        """Containers in which the kernel killed something for want of memory."""
        self.meddled: dict[str, str] = {}
        """Container id -> what somebody else did to it."""
        self.broken = ""
        """Why nothing more is heard; empty: it is."""
        self._over = False
        with asked("listen to the engine's events"):
            self._events = engine.client.events(decode=True, filters={"label": f"{RUN}={run}", "type": "container"})
        self.start()

    def run(self) -> None:
        """Follow the engine's events until the engine goes away, or `close`."""
        try:
            for event in self._events:
                self._take(event["Action"], event["Actor"]["ID"], event["Actor"].get("Attributes", {}))
            reason = "it was restarted, or ended"
        except (DockerException, requests.RequestException, OSError, ValueError) as error:
            reason = str(error)
        except AttributeError:  # the stream was closed under its reader
            reason = "closed"
        if not self._over:
            self.broken = reason

    def over(self) -> None:
        """What happens from now on is our own doing."""
        self._over = True

    def close(self) -> None:
        """Listen no more."""
        self._over = True
        self._events.close()

    def _take(self, action: str, container: str, attributes: Mapping[str, str]) -> None:
        if action == "die":
            self.exits[container] = int(attributes.get("exitCode", 255))
        elif action == "oom":
            self.out_of_memory.add(container)
        elif action in ("stop", "destroy") and not self._over:
            self.meddled.setdefault(container, "stopped" if action == "stop" else "removed")
        elif action == "start":  # that was a restart, or somebody has put it right
            self.meddled.pop(container, None)


def dead_runs(engine: DockerEngine) -> list[str]:
    """Labels of the runs whose harness is gone: nobody will remove what they left, if not we."""
    return sorted({thing.run for thing in engine.labelled() if not _lives(thing.harness)})


def _lives(harness: str) -> bool:
    pid, _, start = harness.partition("-")
    return pid.isdigit() and start.isdigit() and identity(int(pid)) == Identity(int(pid), int(start))


def _connected(url: str) -> docker.DockerClient:
    path = url.removeprefix("unix://")
    try:
        client = docker.DockerClient(base_url=url, version="auto", timeout=TIMEOUT_S, max_pool_size=2 * _HANDS)
    except (DockerException, requests.RequestException, OSError) as error:
        if not os.path.exists(path):
            why = f"no Docker engine runs: there is no {path}; start it (sudo systemctl start docker)"
        elif not os.access(path, os.R_OK | os.W_OK):
            why = (f"you may not use the Docker engine at {path}; ask to be in its group (sudo usermod -aG docker "
                   f"$USER, then log in again)")
        else:
            why = f"no Docker engine answers at {path} ({error}); start it (sudo systemctl start docker)"
        raise EngineError(f"{why}, or run with --on local") from error
    version = tuple(int(part) for part in str(client.api.api_version).split("."))
    if version < _OLDEST_API:
        raise EngineError(f"the Docker engine at {path} is too old (API {client.api.api_version}); it must be 19.03 or "
                          f"newer")
    return client


def _thing(kind: str, resource: Container | Network | Volume) -> Thing:
    labels = resource.attrs.get("Labels") or {}
    names = resource.attrs.get("Names") or [resource.attrs.get("Name", "")]
    return Thing(kind, names[0].lstrip("/"), labels.get(RUN, ""), labels.get(HARNESS, ""))


def _removed(resource: Container | Network | Volume) -> None:
    remove: Callable[..., None] = resource.remove
    try:
        remove(force=True, v=True) if isinstance(resource, Container) else remove()
    except NotFound:
        pass
    except APIError as error:
        if "is already in progress" not in str(error):
            raise
