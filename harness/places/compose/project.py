"""Everything of one run on an engine: networks, volumes and containers, all under one name and one label."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any

from docker.errors import APIError
from docker.types import EndpointConfig, Mount
from docker.types.healthcheck import Healthcheck

from diloco_chaos.harness.places.compose import compose_file
from diloco_chaos.harness.places.compose.engine import DockerEngine, Labels, asked
from diloco_chaos.harness.trainers.core.memory import ORDERS
from diloco_chaos.harness.trainers.core.programs import PROGRESS

TRAINING, OUTSIDE = "training", "outside"
"""The internal network, on which nodes are alone with Toxiproxy, and the one on which the harness reaches Toxiproxy."""
_RUN = "run"
_NOBODY = 10001


class Project:
    """See the module. `user` is who nodes run as: us, and nobody in particular where we are root."""

    def __init__(self, engine: DockerEngine, run: Path, token: str) -> None:
        """`run`: the run's folder, which names the project."""
        self.engine, self.run = engine, run
        self.labels = Labels(token, run.name.lower())
        self.user = _user(run)
        self.networks: dict[str, Any] = {}
        self._file = compose_file.find()

    def begin(self) -> None:
        """Make the networks, and the volume that is the run's folder.

        Raises:
            EngineError: the engine refused.
        """
        with asked("make the run's networks"):
            for name, internal in ((TRAINING, True), (OUTSIDE, False)):
                self.networks[name] = self.engine.client.networks.create(
                    f"{self.labels.project}_{name}", driver="bridge", internal=internal, labels=self.labels.of())
        self.volume(_RUN, type="none", o="bind", device=str(self.run))

    def volume(self, name: str, **options: str) -> None:
        """Make a volume."""
        with asked(f"make the volume {name}"):
            self.engine.client.volumes.create(f"{self.labels.project}_{name}", driver="local", driver_opts=options,
                                              labels=self.labels.of())

    def mount(self, volume: str, target: Path) -> Mount:
        """A volume at a place in a container."""
        return Mount(str(target), f"{self.labels.project}_{volume}", type="volume")

    def run_mount(self) -> Mount:
        """The run's folder, at the same path as outside."""
        return self.mount(_RUN, self.run)

    def stated(self, service: str) -> dict[str, Any]:
        """Return what docker-compose.yml states about a service."""
        return compose_file.service(self._file, service)

    def container(self, service: str, name: str, stated: Mapping[str, Any], command: Sequence[str], *,
                  mounts: Sequence[Mount] = (), env: Mapping[str, str] | None = None,
                  networks: Sequence[str] = (TRAINING,), **more: Any) -> Any:
        """Make and start a container, which `service` names on the first of its networks.

        Raises:
            EngineError: the engine refused.
        """
        first, *others = (self.networks[network] for network in networks)
        endpoint = EndpointConfig(self.engine.client.api.api_version, aliases=[service])
        with asked(f"start {service}"):
            container = self.engine.client.containers.create(
                **stated, name=f"{self.labels.project}-{name}", entrypoint=[command[0]], command=list(command[1:]),
                environment=dict(env or {}), mounts=list(mounts), labels=self.labels.of(service),
                healthcheck=Healthcheck(test=["NONE"]), network=first.name,
                networking_config={first.name: endpoint}, **more)
            for network in others:
                network.connect(container)
            container.start()
            return container

    def attach(self, container: Any, service: str, attached: bool) -> None:
        """Take a container off the internal network, or put it back under its name; harmless where it is so already.

        Raises:
            EngineError: the engine refused.
        """
        network = self.networks[TRAINING]
        with asked(f"{'reconnect' if attached else 'disconnect'} {service}"):
            connected = self.attached(container)
            if connected and not attached:
                network.disconnect(container)
            elif attached and not connected:  # a new incarnation is there from its beginning
                network.connect(container, aliases=[service])

    def attached(self, container: Any) -> bool:
        """Return whether a container is on the internal network now."""
        with asked("look at a container's networks"):
            container.reload()
        return self.networks[TRAINING].name in container.attrs["NetworkSettings"]["Networks"]

    def address(self, container: Any) -> str:
        """Return the IP address of a container on the internal network: this machine reaches it there, too.

        Raises:
            EngineError: it is not there.
        """
        with asked("look at a container's networks"):
            container.reload()
        networks = container.attrs["NetworkSettings"]["Networks"]
        return str(networks.get(self.networks[TRAINING].name, {}).get("IPAddress", ""))

    def gateway(self) -> str:
        """This machine's own address on the internal network.

        Raises:
            EngineError: the engine refused.
        """
        with asked("look at the run's networks"):
            self.networks[TRAINING].reload()
        return str(self.networks[TRAINING].attrs["IPAM"]["Config"][0]["Gateway"])

    def remove(self) -> None:
        """Remove all of it.

        Raises:
            EngineError: something is still there.
        """
        self.engine.remove(self.labels.run)


def tail(container: Any, lines: int = 12) -> str:
    """The last lines of a container's log; without the container there is none."""
    with asked("read a container's log"):
        try:
            text = container.logs(tail=lines).decode(errors="replace").splitlines()
        except APIError as error:
            if error.status_code not in (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT):  # removed, or about to be
                raise
            return "  (its log is gone with its container)"
    return "\n".join(f"  {line}" for line in text) or "  (its log is empty)"


def _user(run: Path) -> str:
    if os.getuid() != 0:
        return f"{os.getuid()}:{os.getgid()}"
    for name in ("tape", "state", "snapshots", "checkpoints", "workings", ORDERS, PROGRESS):  # what nodes write
        (run / name).mkdir(exist_ok=True)
        for path in (run / name, *(run / name).rglob("*")):  # a run that goes on has files there
            os.chown(path, _NOBODY, _NOBODY, follow_symlinks=False)
    return f"{_NOBODY}:{_NOBODY}"
