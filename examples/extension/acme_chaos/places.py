"""Two places: processes of this machine that give way to all others, and virtual time on machines that are far away."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from diloco_chaos import EVERYWHERE, Ability, Option, Parameters, Place, Recorder, Requirement, Simulated

if TYPE_CHECKING:  # a place is looked at by commands that run nothing
    from diloco_chaos import Site, UndoLog

NICENESS = Option("acme_niceness", "How far nodes give way, for --on acme-nice.", 10, between=(1, 19))


class Nice(Place):
    """Each node is started by `nice`: a run that others on the machine don't notice."""

    name = "acme-nice"
    nodes = "processes that give way"
    can: ClassVar[frozenset[Ability]] = EVERYWHERE | {"signal_process", "signal_inner"}
    unable = "processes that give way can't do that"
    cannot: ClassVar[Mapping[Ability, str]] = {
        "exhaust_memory": "processes that give way share their memory with all others"}
    options = (NICENESS,)

    def __init__(self, niceness: int = NICENESS.default) -> None:
        self._niceness = niceness

    @classmethod
    def chosen(cls, given: Mapping[str, Any]) -> Self:
        """As far as the option says."""
        return cls(given.get(NICENESS.name, NICENESS.default))

    def site(self, run: Path, record: Recorder, undo_log: UndoLog) -> Site:
        """That of local processes, with a launcher of our own."""
        from diloco_chaos import LocalSite
        return LocalSite(run, record, undo_log, launcher=lambda node: ("nice", "-n", str(self._niceness)))

    @classmethod
    def requirements(cls, given: Mapping[str, Any]) -> list[Requirement]:
        """The program that starts nodes."""
        found = shutil.which("nice")
        return [Requirement("nice", "ok", found) if found else
                Requirement("nice", "missing", "not installed", "install coreutils")]


class Far(Simulated):
    """Links of five milliseconds."""

    name = "acme-far"

    def __init__(self) -> None:
        super().__init__(Parameters(delay=0.005, jitter=0.0005))
