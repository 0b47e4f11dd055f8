"""Virtual time on machines that are far from each other."""

from __future__ import annotations

from dataclasses import replace

from diloco_chaos import Backend
from diloco_chaos.chaos.runner.backends import simulated
from diloco_chaos.harness.simulation.parameters import Parameters


def far() -> Backend:
    """Links of five milliseconds."""
    return replace(simulated(Parameters(delay=0.005, jitter=0.0005)), name="acme-far")
