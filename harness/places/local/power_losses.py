"""What nodes on this machine lose with their power: writes that they had not synced."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from diloco_chaos.harness.places.base import ClusterError, NodeSpec
from diloco_chaos.harness.places.local.preloads import Preloads
from diloco_chaos.harness.places.nodes.nodes import Nodes
from diloco_chaos.harness.preload.unsynced import Journal, Loss
from diloco_chaos.harness.trainers.core.programs import filled

_COMPILED = "/__pycache__/"
"""Python makes these anew where they are broken."""


class PowerLosses:
    """The journals of one run's nodes. Implements `diloco_chaos.harness.places.capabilities.Unsynced`."""

    def __init__(self, run: Path, preloads: Preloads, nodes: Nodes[Any]) -> None:
        """`run`: the run's folder."""
        self._run, self._preloads, self._nodes = run.resolve(), preloads, nodes
        self._journals: dict[str, Journal] = {}

    def begin(self, nodes: Sequence[NodeSpec]) -> None:
        """Make a journal for each of these nodes that can lose something, beside its page.

        Raises:
            ClusterError: it can't be made.
        """
        for spec in (each for each in nodes if "lose_unsynced" in each.preloaded):
            try:
                self._journals[spec.name] = Journal(self._preloads.page(spec.name)[1])
            except OSError as error:
                raise ClusterError(f"{error}") from error

    def kill_unsynced(self, node: str, restart_after: float | None, pattern: str) -> Loss:
        """Kill it, wait until all of its processes are gone, and cut its files."""
        if not self._nodes[node].alive:
            return Loss((), 0, why="it was not there")
        self._nodes[node].end(signal.SIGKILL, restart_after)
        self._nodes.wait_gone(node)
        if why := self._preloads.why_not_loaded(node):
            return Loss((), 0, why=why.removeprefix(f"{node}: "))
        wanted = [self._preloads.whole(node, pattern)] if pattern else self._folders(self._preloads.spec(node))
        loss = self._journals[node].lose(
            lambda name: any(fnmatchcase(name, each) for each in wanted) and (bool(pattern) or _COMPILED not in name))
        return replace(loss, lost=tuple((name.removeprefix(f"{self._run}/"), size) for name, size in loss.lost))

    def end(self) -> None:
        """The run is over: the journals are no more."""
        for journal in self._journals.values():
            journal.remove()

    def _folders(self, spec: NodeSpec) -> list[str]:
        """Return patterns of all files in the run's folder, and where a command runs."""
        work = [] if spec.program is None else [
            os.path.realpath(filled(spec.program.cwd, spec.program.own(str(self._run), spec.name), {}))]
        return [f"{folder}/*" for folder in (self._run, *work)]
