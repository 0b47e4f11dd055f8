"""Restarting the engine under a run, which only the user can do: by a command that the environment names."""

from __future__ import annotations

import os
import shlex

from diloco_chaos.harness.places.base import ClusterError
from diloco_chaos.harness.record.user_commands import begun
from diloco_chaos.harness.trainers.core.programs import splittable

ENGINE_RESTART = "DILOCO_CHAOS_ENGINE_RESTART"
"""Environment variable: the command that restarts the engine. Without it no scenario may ask for that."""


def is_known() -> bool:
    """Return whether the user gave a command that restarts the engine.

    Raises:
        ClusterError: what was said is no command.
    """
    command = os.environ.get(ENGINE_RESTART, "")
    try:
        return bool(command and splittable(command))
    except ValueError as error:
        raise ClusterError(f"{ENGINE_RESTART}: {error}") from error


class EngineRestart:
    """Implements `diloco_chaos.harness.places.capabilities.Engine`."""

    def restart_engine(self) -> None:
        """Begin the restart by the user's command; nothing waits for it, for it takes the run with it."""
        begun(shlex.split(os.environ[ENGINE_RESTART]))
