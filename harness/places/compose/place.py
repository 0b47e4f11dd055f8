"""Containers of docker-compose.yml's services, on a Docker engine of this machine."""

from __future__ import annotations

from collections.abc import Collection, Mapping
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


class Compose(Place):
    """See the module."""

    name = "compose"
    nodes = "containers"
    can: ClassVar[frozenset[Ability]] = EVERYWHERE | {
        "exhaust_memory", "disconnect", "fill_disk", "restart_links", "fail_calls", "hang", "cuda", "signal_inner"}
    may: ClassVar[frozenset[Ability]] = frozenset({"restart_engine"})
    unable = "a container can't be made to do that"
    cannot: ClassVar[Mapping[Ability, str]] = {
        "hang_inner": "in a container only the first process of a node can hang",
        "lose_unsynced": "what a container has not synced is known by names that only the container knows",
        "restart_engine": f"nobody said how to restart the engine: set {ENGINE_RESTART} to a command that does"}
    takes: ClassVar[frozenset[Part]] = frozenset({"peers: caught", "files", "image", "service"})
    refuses: ClassVar[Mapping[Part, str]] = {"left_behind: keep": "a container ends with all that runs in it",
                                             "spare": "no container can be added to a run of commands"}
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
        from diloco_chaos.harness.places.compose.engine import DockerEngine
        DockerEngine().close()
        self._links_port, self._restarts, self._ours_is_ready = links_port, is_known(), False

    @classmethod
    def chosen(cls, given: Mapping[str, Any]) -> Self:
        """Return this place with a port that is free."""
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
        """An engine, images, and Compose."""
        if why := lacking("docker", "compose", "--on compose"):
            return [Requirement("docker", "missing", "docker-py is not installed", why), _cli()]
        from diloco_chaos.harness.places.compose.readiness import requirement
        return [requirement(), _cli()]

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


def _cli() -> Requirement:
    """Compose, which reads compose files."""
    from diloco_chaos.harness.places.compose import compose_cli
    installed = compose_cli.version()
    if installed >= compose_cli.OLDEST:
        return Requirement("compose", "ok", f"docker compose {installed[0]}.{installed[1]}")
    return Requirement("compose", "missing", "too old" if installed else "not installed", compose_cli.NEEDED)
