"""A network card that fell back to a slower mode."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import Field

from diloco_chaos import Drawn, LinkFault, Sounding, Toxic, units


class NicBrownout(LinkFault):
    """A thin link that also answers late: what a card does that renegotiated its speed."""

    toxic: ClassVar[str] = "latency"
    measures: ClassVar[str] = "delay_s"
    shown_as = "far"
    drawn = Drawn(1000, {"for": ("1s", "2s", "3s"), "delay": ("10ms", "40ms"), "rate": ("1MB/s", "200kB/s")})

    kind: Literal["nic_brownout"] = "nic_brownout"
    delay: units.Seconds = Field(0.01, gt=0)
    """Each way."""
    rate: units.Rate = Field(1e6, ge=1e3)
    """Bytes per second each way."""

    def attributes(self) -> Mapping[str, int]:
        """Milliseconds."""
        return {"latency": round(self.delay * 1e3), "jitter": 0}

    def toxics(self, fault: str) -> list[Toxic]:
        """The delay, and a limit of bandwidth beside it."""
        thin = {"rate": max(1, round(self.rate / 1e3))}
        return [*super().toxics(fault), *(Toxic("bandwidth", stream, thin, self.toxicity, f"{fault}-bandwidth-{stream}")
                                          for stream in self.streams)]

    def measured(self, sounding: Sounding, baseline: float) -> float | None:
        """Seconds that each way takes longer."""
        return (sounding.seconds - baseline) / len(self.streams) if sounding.answered else None

    def near(self, value: float) -> bool:
        """At least half of what was asked for; a thin link adds to it."""
        return value >= self.delay / 2

    def what(self) -> str:
        """Brown."""
        return f"in a brownout (+{units.show_seconds(self.delay)}, {self.rate / 1e6:g} MB/s)"
