"""What comes from outside of a run: others stop or remove its containers, and engines go away."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from diloco_chaos.harness.places.base import ClusterError
from diloco_chaos.harness.places.compose.engine import ContainerWatch, DockerEngine, EngineError

_MEDDLED_S, _ENGINE_ENDS_S = 1.0, 5.0


class Outside:
    """See the module. From `begin` on the engine's events are listened to."""

    def __init__(self, engine: DockerEngine, label: str, run: Path) -> None:
        """`label`: of the run, `run`: its folder."""
        self._engine, self._label, self._run = engine, label, run
        self._watch: ContainerWatch | None = None

    def begin(self) -> None:
        """Listen.

        Raises:
            EngineError: the engine does not answer.
        """
        self._watch = ContainerWatch(self._engine, self._label)

    @property
    def watch(self) -> ContainerWatch:
        """Return what listens to the engine's events."""
        assert self._watch is not None, "the cluster was started"
        return self._watch

    def over(self) -> None:
        """What happens from now on is our own doing."""
        if self._watch is not None:
            self._watch.over()

    def close(self) -> None:
        """Listen no more."""
        if self._watch is not None:
            self._watch.close()

    def must_be_there(self) -> None:
        """Raises where the engine has gone.

        Raises:
            EngineError: it has.
        """
        if self.watch.broken:
            raise self.went_away()

    def has_gone(self) -> bool:
        """Return whether the engine has gone, as far as is known now."""
        return bool(self.watch.broken) or not self._engine.answers()

    def must_be_left_alone(self, name: str, container: str) -> None:
        """Raises where somebody else ended a container: a user, or the engine, before it ends itself.

        Raises:
            ClusterError: it is so.
        """
        if meddled := self.watch.meddled.get(container, ""):
            self.wait_for(_ENGINE_ENDS_S, lambda: False)
            raise ClusterError(f"{name}'s container was {meddled} from outside: did somebody type `docker compose "
                               f"down`, or `docker stop`?")

    def must_have_ended_by_itself(self, name: str, container: str) -> None:
        """The same for one that has ended: the engine tells a moment later whether somebody else brought it about."""
        self.wait_for(_MEDDLED_S, lambda: bool(self.watch.meddled.get(container, "")))
        self.must_be_left_alone(name, container)

    def wait_for(self, seconds: float, condition: Callable[[], bool]) -> None:
        """Wait until the condition holds, or so many seconds have passed.

        Raises:
            EngineError: the engine has gone meanwhile.
        """
        until = time.monotonic() + seconds
        while time.monotonic() < until and not condition():
            self.must_be_there()
            time.sleep(0.02)

    def went_away(self) -> EngineError:
        """Return the error that says that the engine went away."""
        return EngineError(f"the Docker engine went away in the middle of the run, and its containers with it. Kept: "
                           f"the tape, the checkpoints and the snapshots in {self._run}")
