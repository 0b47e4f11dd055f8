"""What a place of many machines can do only by commands of the user's, and how it says so."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from diloco_chaos.harness.places.base import Ability
from diloco_chaos.harness.places.place import Place, Requirement

if TYPE_CHECKING:
    from diloco_chaos.harness.places.remote.settings import PlaceSettings

BY_COMMAND: frozenset[Ability] = frozenset({"node_power_loss", "node_partition", "restart_control_plane"})
"""What can be done where `commands` of the place's settings say how."""
SAY_HOW: Mapping[Ability, str] = dict.fromkeys(
    BY_COMMAND, "only you can do that to your machines: say how in `commands` of --place FILE")
ALONE: Mapping[Ability, str] = dict.fromkeys(BY_COMMAND, "only a cluster of machines has that")
_LOAD = 0.35
"""Of the processors of a machine that is a whole cluster, too: its daemons, agents, forwarded ports and the
interpreters of nodes that come back need the rest."""


class OfMachines(Place):
    """A place of many machines: it can do, too, what its settings say how to do."""

    here = False
    may: ClassVar[frozenset[Ability]] = BY_COMMAND
    most_load: ClassVar[float] = _LOAD
    settings: PlaceSettings

    @property
    def abilities(self) -> frozenset[Ability]:
        """Return its own abilities, and those for which its settings have a command."""
        return self.can | (BY_COMMAND & self.settings.commands.keys())


def requirements(settings: PlaceSettings) -> list[Requirement]:
    """A line for each."""
    return [Requirement("faults", "ok", what) if what in settings.commands else
            Requirement("faults", "optional", what, "only where you say how: `commands` of --place FILE")
            for what in sorted(BY_COMMAND)]
