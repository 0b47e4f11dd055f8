"""What a run leaves on a Docker engine, and how it is removed once its harness is dead."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from diloco_chaos.harness.base.extras import lacking
from diloco_chaos.harness.record.undos import Undo

if TYPE_CHECKING:  # docker-py is not needed to read an undo log
    from diloco_chaos.harness.places.compose.engine import DockerEngine

_SETTLE_S = 0.5
_DEFAULT_SOCKET = "/var/run/docker.sock"


class Containers(Undo):
    """Remove every container, network and volume that is labelled with the run, and nothing else."""

    entry: Literal["containers"] = "containers"
    engine: str = Field(pattern=r"^unix://")
    run: str = Field(pattern=r"^[0-9a-f]{12}$")

    def describe(self) -> str:
        """Say for people what was removed."""
        return f"containers, networks and volumes of {self.run} removed"

    def heal(self, token: str) -> bool:
        """Remove them, also what comes up meanwhile: what the harness had asked for in its last moment is still
        made."""
        if why := lacking("docker", "compose", f"removing the containers of {self.run}"):
            raise OSError(why)
        from diloco_chaos.harness.places.compose.engine import DockerEngine, EngineError
        try:
            engine = DockerEngine(self.engine)
            try:
                removed = engine.remove(self.run)
                while engine.labelled(self.run) or (removed and self._comes_up(engine)):
                    removed += engine.remove(self.run)
                return bool(removed)
            finally:
                engine.close()
        except EngineError as error:
            raise OSError(str(error)) from error

    def _comes_up(self, engine: DockerEngine) -> bool:
        time.sleep(_SETTLE_S)
        return bool(engine.labelled(self.run))


def orphans_removed() -> list[str]:
    """Remove containers whose undo log is gone, too: their label names a harness, and that one is dead.

    Raises:
        OSError: some are still there.
    """
    if not Path(os.environ.get("DOCKER_HOST", _DEFAULT_SOCKET).removeprefix("unix://")).exists():
        return []  # there is no engine, and docker-py need not be imported to know that
    if lacking("docker", "compose", "removing containers"):
        return []  # no run from here can have left any; an undo log that says so is told of where it is read
    from diloco_chaos.harness.places.compose.engine import DockerEngine, EngineError, dead_runs
    try:
        engine = DockerEngine()
    except EngineError:
        return []  # what an undo log says of containers was tried, and told
    try:
        return [words for run in dead_runs(engine) for words in engine.remove(run)]
    except EngineError as error:
        raise OSError(str(error)) from error
    finally:
        engine.close()
