"""Containers of docker-compose.yml's services, on a Docker engine of this machine."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from diloco_chaos.harness.base.extras import lacking, require
from diloco_chaos.harness.places.base import EVERYWHERE, Ability
from diloco_chaos.harness.places.compose.engine_restart import ENGINE_RESTART, is_known
from diloco_chaos.harness.places.local.place import EMBEDDED, REAL, TOXIPROXY, TOXIPROXY_PORT, free
from diloco_chaos.harness.places.place import OptionError, Part, Place, Requirement
from diloco_chaos.harness.trainers.core.programs import Program

if TYPE_CHECKING:
    from diloco_chaos.harness.places.base import Recorder
    from diloco_chaos.harness.places.site import Site
    from diloco_chaos.harness.record.undo_log import UndoLog
    from diloco_chaos.harness.record.undos import Undo

_OLDEST_COMPOSE = (1, 29)
_ASK_S = 5


class Compose(Place):
    """See the module."""

    name = "compose"
    nodes = "containers"
    can: ClassVar[frozenset[Ability]] = EVERYWHERE | {"exhaust_memory", "disconnect", "fill_disk", "restart_links"}
    may: ClassVar[frozenset[Ability]] = frozenset({"restart_engine"})
    unable = "a container can't be made to do that"
    cannot: ClassVar[Mapping[Ability, str]] = {
        "restart_engine": f"nobody said how to restart the engine: set {ENGINE_RESTART} to a command that does"}
    takes: ClassVar[frozenset[Part]] = frozenset({"peers: caught", "image", "service"})
    in_images = True
    only_cpu = "containers have none"
    options = (TOXIPROXY, TOXIPROXY_PORT)

    def __init__(self, links_port: int = 0) -> None:
        """`links_port`: where Toxiproxy's API is published on 127.0.0.1, 0 for any.

        Raises:
            EngineError: there is no engine that can be used.
            ClusterError: what restarts it is no command.
            MissingExtraError: docker-py is not installed.
        """
        require("docker", "compose", "--on compose")
        from diloco_chaos.harness.places.compose.engine import Engine
        Engine().close()
        self._links_port, self._restarts, self._ours_is_ready = links_port, is_known(), False

    @classmethod
    def chosen(cls, given: Mapping[str, Any]) -> Self:
        """With a port that is free."""
        if (toxiproxy := given.get("toxiproxy", EMBEDDED)) not in (EMBEDDED, REAL):
            raise OptionError(f"--toxiproxy {toxiproxy}: on compose the links are those of the image; leave it out")
        return cls(free(given.get("toxiproxy_port", 0)))

    @property
    def abilities(self) -> frozenset[Ability]:
        """The engine is restarted only where somebody said how."""
        return self.can | self.may if self._restarts else self.can

    def must_be_ready(self, programs: Collection[Program]) -> None:
        """Images must be there, and ours must hold this version of the trainer: looking into it once is enough."""
        from diloco_chaos.harness.places.compose.readiness import must_be_ready
        if programs or not self._ours_is_ready:
            must_be_ready(programs=programs)
        self._ours_is_ready = self._ours_is_ready or not programs

    def site(self, run: Path, record: Recorder, undo_log: UndoLog) -> Site:
        """Containers, networks and volumes with the run's label."""
        from diloco_chaos.harness.places.compose.site import ComposeSite
        return ComposeSite(run, record, undo_log, links_port=self._links_port)

    @classmethod
    def requirements(cls, given: Mapping[str, Any]) -> list[Requirement]:
        """An engine, and images."""
        if why := lacking("docker", "compose", "--on compose"):
            return [Requirement("docker", "missing", "docker-py is not installed", why), _by_hand()]
        from diloco_chaos.harness.places.compose.readiness import requirement
        return [requirement(), _by_hand()]

    @classmethod
    def undos(cls) -> tuple[type[Undo], ...]:
        """Everything on the engine with the run's label."""
        from diloco_chaos.harness.places.compose.undos import Containers
        return (Containers,)

    @classmethod
    def orphans_removed(cls) -> list[str]:
        """Containers say whose they are."""
        from diloco_chaos.harness.places.compose.undos import orphans_removed
        return orphans_removed()


def _by_hand() -> Requirement:
    """Return what is known of Compose, which is only for `docker compose up` by hand: runs need none."""
    for command in (["docker", "compose"], ["docker-compose"]):
        if shutil.which(command[0]) is None:
            continue
        with suppress(subprocess.TimeoutExpired):
            done = subprocess.run([*command, "version", "--short"], capture_output=True, text=True, timeout=_ASK_S,
                                  check=False)
            match = re.match(r"v?(\d+)\.(\d+)", done.stdout.strip())
            if done.returncode == 0:
                old = match is not None and (int(match[1]), int(match[2])) < _OLDEST_COMPOSE
                return Requirement("compose", "optional" if old else "ok",
                                   f"{' '.join(command)} {done.stdout.strip()}",
                                   "too old for docker-compose.yml: it must be 1.29, or 2" if old else "")
    return Requirement("compose", "optional", "not installed",
                       "not needed for runs; for `docker compose up` install it")
