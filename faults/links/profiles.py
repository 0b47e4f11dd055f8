"""Wide-area networks by name: what `profile:` of a latency fault stands for.

Round trips are what providers promise or publish; jitter is ours, small against the delay so that the figure that is
observed is the one that was asked for, and the rates are ours, those of one well-tuned TCP stream and not of a cable.
"""

from __future__ import annotations

from typing import NamedTuple


class Profile(NamedTuple):
    """A distance."""

    delay: float
    """Each way, seconds: half the round trip."""
    jitter: float
    """Plus or minus, seconds."""
    rate: float
    """Each way, bytes per second."""
    source: str
    """Where the round trip comes from."""


PROFILES = {
    "metro": Profile(0.001, 0.0002, 125e6, "availability zones of one region: under 2 ms round trip, the bound that "
                                           "Microsoft's Azure documentation gives"),
    "continental": Profile(0.0225, 0.001, 60e6, "Verizon's Internet SLA: 45 ms round trip between hubs in the "
                                                "contiguous US"),
    "transatlantic": Profile(0.045, 0.002, 30e6, "Verizon's Internet SLA: 90 ms round trip, New York to London"),
}
