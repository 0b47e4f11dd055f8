"""Virtual time on machines that are far from each other."""

from __future__ import annotations

from diloco_chaos.harness.places.simulated.place import Simulated
from diloco_chaos.harness.simulation.parameters import Parameters


class Far(Simulated):
    """Links of five milliseconds."""

    name = "acme-far"

    def __init__(self) -> None:
        super().__init__(Parameters(delay=0.005, jitter=0.0005))
