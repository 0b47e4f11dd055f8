"""Virtual time, in one process."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from diloco_chaos.harness.places.base import EVERYWHERE, Ability
from diloco_chaos.harness.places.local.place import TOXIPROXY, TOXIPROXY_PORT
from diloco_chaos.harness.places.place import Place

if TYPE_CHECKING:
    from diloco_chaos.harness.places.base import Recorder
    from diloco_chaos.harness.places.site import Site
    from diloco_chaos.harness.record.undo_log import UndoLog
    from diloco_chaos.harness.simulation.parameters import Parameters

_OF_SIMULATIONS: frozenset[Ability] = frozenset({"lose_power", "jump_clock", "share_links"})


class Simulated(Place):
    """See the module."""

    name = "simulated"
    nodes = "virtual time"
    can: ClassVar[frozenset[Ability]] = EVERYWHERE | _OF_SIMULATIONS | {
        "exhaust_memory", "disconnect", "fill_disk", "restart_links", "fail_calls", "hang"}
    unable = "a simulation can't do that"
    cannot: ClassVar[Mapping[Ability, str]] = {"restart_engine": "there is no engine in a simulation"}
    alone: ClassVar[Mapping[Ability, str]] = dict.fromkeys(_OF_SIMULATIONS, "only a simulation can do that")
    not_resumed = "a simulation that was ended left no global checkpoints"
    no_options: ClassVar[Mapping[str, str]] = dict.fromkeys(
        [TOXIPROXY.name, TOXIPROXY_PORT.name], "under virtual time there is no server of the links")

    def __init__(self, parameters: Parameters | None = None) -> None:
        """`parameters`: of machines and links, the usual ones if not given."""
        self._parameters = parameters

    @property
    def parameters(self) -> Parameters:
        """Return the parameters of machines and links."""
        from diloco_chaos.harness.simulation.parameters import Parameters
        return self._parameters or Parameters()

    def site(self, run: Path, record: Recorder, undo_log: UndoLog) -> Site:
        """Its nodes run on a stage of virtual time."""
        raise NotImplementedError(f"{self.name}: time is virtual")
