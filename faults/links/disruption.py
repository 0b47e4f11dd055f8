"""Links that misbehave: connections that break, close late, fall silent, or crumble."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from diloco_chaos.faults.base import Drawn, FaultContext
from diloco_chaos.faults.evidence import Effect, Evidence, Injection
from diloco_chaos.faults.links.base import DIRECTIONS, FOR, MOST_PROBE_BYTES, SLACK_S, TOLERANCE, LinkFault
from diloco_chaos.harness.base.units import Seconds, between, show_seconds
from diloco_chaos.harness.links.probe import Sounding

_SLICES = 20


class SlowClose(LinkFault):
    """Connections close late: the end of one side reaches the other after a delay."""

    toxic: ClassVar[str] = "slow_close"
    measures: ClassVar[str] = "close_s"
    shown_as = "far"
    drawn = Drawn(100, {**FOR, "delay": ("200ms", "1s")}, family="link")

    kind: Literal["slow_close"] = "slow_close"
    delay: Seconds = Field(0.5, gt=0)

    def attributes(self) -> Mapping[str, int]:
        """Milliseconds."""
        return {"delay": round(self.delay * 1e3)}

    def ask(self, hit: FaultContext, link: str) -> Sounding:
        """Close, and watch for the other side's end."""
        return hit.probe(link, watch_close=True)

    def measured(self, sounding: Sounding, baseline: float) -> float | None:
        """Seconds from the end of our side to the end of theirs."""
        return sounding.closing

    def near(self, value: float) -> bool:
        """Return whether the value is at least half of the delay; both ways it comes twice."""
        return TOLERANCE * self.delay <= value <= (len(self.streams) + TOLERANCE) * self.delay + SLACK_S

    def what(self) -> str:
        """Slow to close."""
        return f"closing {show_seconds(self.delay)} late"


class Timeout(LinkFault):
    """Nothing gets through, and nobody says so: the connection stands while its data vanishes. It is closed after
    `close_after` without data, or when the fault is over."""

    toxic: ClassVar[str] = "timeout"
    measures: ClassVar[str] = "silent_s"
    silences: ClassVar[bool] = True
    mutes: ClassVar[bool] = True
    shown_as = "partitioned"
    drawn = Drawn(80, {**FOR, "close_after": ("0s", "200ms"), "direction": DIRECTIONS}, family="link")

    kind: Literal["timeout"] = "timeout"
    close_after: Seconds = 0.0

    def attributes(self) -> Mapping[str, int]:
        """Milliseconds, 0 for ever."""
        return {"timeout": round(self.close_after * 1e3)}

    def measured(self, sounding: Sounding, baseline: float) -> float | None:
        """Seconds until we gave up, or the connection was closed."""
        return None if sounding.answered else sounding.seconds

    def what(self) -> str:
        """Mute."""
        after = f", closed after {show_seconds(self.close_after)}" if self.close_after else ""
        return f"swallowing all data{after}"


class Reset(LinkFault):
    """Connections are reset (TCP RST) when data comes, `reset_after` later. Those from before the fault are ended
    (FIN) instead, as Toxiproxy does; those that are made meanwhile end with a reset, whatever ends them, and
    whenever."""

    toxic: ClassVar[str] = "reset_peer"
    measures: ClassVar[str] = "reset_s"
    silences: ClassVar[bool] = True
    shown_as = "partitioned"
    drawn = Drawn(90, {**FOR, "reset_after": ("0s", "100ms")}, family="link")

    kind: Literal["reset"] = "reset"
    reset_after: Annotated[Seconds, between(0, 1, "1s at most")] = 0.0

    def attributes(self) -> Mapping[str, int]:
        """Milliseconds."""
        return {"timeout": round(self.reset_after * 1e3)}

    def measured(self, sounding: Sounding, baseline: float) -> float | None:
        """Seconds until the connection broke."""
        return sounding.seconds if sounding.end in ("reset", "closed") else None

    def took_effect(self, run: Evidence, on: Injection) -> Effect:
        """Say, too, how the trainer's own connections ended."""
        effect = super().took_effect(run, on)
        before = on.observed.get("connections_before")
        return effect._replace(observed=f"{effect.observed}; {int(before)} from before ended without a reset") if (
            effect.ok and before) else effect

    def what(self) -> str:
        """Reset."""
        after = f" {show_seconds(self.reset_after)} after their first data" if self.reset_after else ""
        return f"resetting connections{after}"


class Slicer(LinkFault):
    """Data comes in small pieces with pauses between them."""

    felt_one_way: ClassVar[bool] = True
    toxic: ClassVar[str] = "slicer"
    measures: ClassVar[str] = "pause_s"
    shown_as = "far"
    drawn = Drawn(110, {**FOR, "size": (16384, 1024), "delay": ("2ms", "10ms")}, family="link")

    kind: Literal["slicer"] = "slicer"
    size: int = Field(16384, ge=64, le=1 << 30)
    """Mean size of a piece, bytes."""
    variation: int = Field(0, ge=0, le=1 << 30)
    """Plus or minus, bytes."""
    delay: Annotated[Seconds, between(1e-3, 1, "between 1ms and 1s")] = 0.002
    """Between two pieces."""

    @model_validator(mode="after")
    def _fits(self) -> Slicer:
        if self.variation >= self.size:
            raise ValueError(f"a variation of {self.variation} bytes leaves nothing of pieces of {self.size}")
        return self

    def attributes(self) -> Mapping[str, int]:
        """Bytes and microseconds."""
        return {"average_size": self.size, "size_variation": self.variation, "delay": round(self.delay * 1e6)}

    def ask(self, hit: FaultContext, link: str) -> Sounding:
        """A payload of twenty pieces."""
        return self.loaded(hit, link, _SLICES * self.size)

    def measured(self, sounding: Sounding, baseline: float) -> float | None:
        """Seconds per piece."""
        return (sounding.seconds - baseline) / _SLICES if sounding.answered else None

    def near(self, value: float) -> bool:
        """Return whether the value is at least half of the delay; pieces are smaller where reads end, and timers
        late."""
        return TOLERANCE * self.delay <= value <= 3 * self.delay + SLACK_S

    def what(self) -> str:
        """Return that the data goes in pieces, in words for people."""
        return f"in pieces of {self.size} bytes, {show_seconds(self.delay)} apart"


class LimitData(LinkFault):
    """A connection is closed once so many bytes went through it."""

    toxic: ClassVar[str] = "limit_data"
    measures: ClassVar[str] = "bytes"
    felt_one_way: ClassVar[bool] = True
    silences: ClassVar[bool] = True
    shown_as = "partitioned"
    drawn = Drawn(120, {**FOR, "size": (20_000, 2_000, 100_000)}, family="link")

    kind: Literal["limit_data"] = "limit_data"
    size: int = Field(100_000, ge=1, le=MOST_PROBE_BYTES // 2)
    """Bytes per connection and direction."""

    def attributes(self) -> Mapping[str, int]:
        """Bytes."""
        return {"bytes": self.size}

    def ask(self, hit: FaultContext, link: str) -> Sounding:
        """More than may pass."""
        return self.loaded(hit, link, 2 * self.size)

    def measured(self, sounding: Sounding, baseline: float) -> float | None:
        """Bytes that came back before the end."""
        return None if sounding.answered else float(sounding.received)

    def near(self, value: float) -> bool:
        """Exactly; upstream the answer never begins."""
        return value == (0 if self.direction == "upstream" else self.size)

    def what(self) -> str:
        """Short-lived."""
        return f"closing connections after {self.size} bytes"
