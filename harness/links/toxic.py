"""A toxic: what is done to one direction of a link, in the words of Toxiproxy's HTTP API."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

EMBEDDED = "-embedded"
"""What the version that the embedded server reports ends with."""


@dataclass(frozen=True)
class Toxic:
    """One toxic on one stream of a link.

    `stream` is "upstream" (towards the server) or "downstream"; `toxicity` the probability with which a
    connection is hit. Toxics of a link with the same `draw` hit the same connections, where the server can do so
    (the embedded one); elsewhere each of the `ways` directions is drawn alone, so seldom that together they hit as
    many. Attributes by type, whole numbers from 0, 0 where not given:

    - `latency`: every chunk is delayed by `latency` +/- `jitter` ms.
    - `bandwidth`: at most `rate` KB/s (1 KB = 1000 bytes) get on; at 0 nothing does.
    - `timeout`: all data is dropped; the connection is closed after `timeout` ms without any, at 0 when the
      toxic is removed (a removal closes it in any case).
    - `reset_peer`: the connection is reset (TCP RST to both ends) `timeout` ms after the first data, or the
      end, which is dropped; an idle one stays open. Nothing stops a reset under way, and the real server
      lets an `update` or `remove` wait for it. Connections older than the toxic end without RST; newer ones
      end with it, whatever ends them, also after the toxic was removed.
    - `slow_close`: the end of the stream is held for `delay` ms, or until the toxic is removed.
    - `slicer`: chunks are cut into slices of about `average_size` (1 or more) +/- `size_variation` (less than
      that) bytes, `delay` microseconds (not ms) apart.
    - `limit_data`: after `bytes` bytes of a connection, counted from when the toxic came, it is closed; at 0
      with the first data. An `update` doesn't start the count anew.
    - `corrupt`, which only the embedded server has: one bit turns over in each block of `every` bytes once `after`
      bytes have passed, `count` in all (0: no end), by `seed`. Bytes of all connections count together.
    - `noop`: nothing happens, and there are no attributes.
    """

    type: str
    stream: str
    attributes: Mapping[str, int | float]
    toxicity: float = 1.0
    name: str = ""
    draw: str = ""
    ways: int = 1

    def __post_init__(self) -> None:
        if not self.name:
            object.__setattr__(self, "name", f"{self.type}_{self.stream}")

    def as_json(self) -> dict[str, Any]:
        """The toxic as the HTTP API of the embedded server writes it."""
        drawn = {"draw": self.draw} if self.draw and self.toxicity < 1 else {}
        return {"name": self.name, "type": self.type, "stream": self.stream, "toxicity": self.toxicity,
                "attributes": {name: _whole(value) for name, value in self.attributes.items()}} | drawn

    def drawn_alone(self) -> Toxic:
        """Return the toxic for a server that draws each direction alone."""
        return replace(self, toxicity=each_way(self.toxicity, self.ways), draw="", ways=1)


def each_way(toxicity: float, ways: int) -> float:
    """Return the probability with which each of so many directions is to be hit, drawn apart, so that this share of
    connections is hit in one or more."""
    return float(1 - (1 - toxicity) ** (1 / ways))


def _whole(value: int | float) -> int | float:
    """Toxiproxy takes whole numbers only where Go's decoder sees no decimal point: 100, not 100.0."""
    return int(value) if isinstance(value, float) and value.is_integer() else value
