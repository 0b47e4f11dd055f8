"""What a toxic is set to, and what each type does to the bytes of one direction.

Field names, units and defaults are those of Toxiproxy's HTTP API documentation
(https://github.com/Shopify/toxiproxy#toxics). Settings are frozen and shared by all connections of a proxy;
what one direction of one connection remembers lives in its own `Pace`. A further toxic type is one more
subclass of `Attributes` and one more line in `REGISTRY`; where the hooks below can't express it, it adds a
hook that is neutral by default.

Behaviour is that of Toxiproxy 2.x, with these differences on purpose. `timeout` and `reset_peer` drop what is
under way in the other direction too (Toxiproxy still delivers it), and changing or removing a `reset_peer`
doesn't wait for the resets under way. `slicer` draws every slice from `average_size` +/- `size_variation`
(Toxiproxy halves chunks until they fit, so that its slices are smaller on average). Settings that the real
server doesn't bear have a meaning. Negative numbers, and a toxicity that is no probability, are refused.
`corrupt` and `draw` are ours alone.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

from diloco_chaos.harness.links.fields import BadRequestError, nested, probability, text, whole

STREAMS = ("upstream", "downstream")
PLAIN_WINDOW = 256 * 1024

_KILOBYTE = 1000  # Toxiproxy's KB/s are decimal: `rate` bytes every millisecond
DELAYED_WINDOW = 1024 * 32 * 1024  # so many chunks wait in Toxiproxy


@dataclass(frozen=True)
class Attributes:
    """The effect of a toxic on the bytes of one direction; the neutral base of all types."""

    window_bytes: ClassVar[int] = PLAIN_WINDOW  # that may be under way in one direction of a connection
    swallows: ClassVar[bool] = False  # no byte gets through
    closes_on_removal: ClassVar[bool] = False  # a stream with a hole in it can't go on once the toxic is gone
    touches_data: ClassVar[bool] = True  # else it matters for ends alone
    resets_all: ClassVar[bool] = False  # connections made while it exists end in a reset, whatever ends them

    def delay_s(self, rng: random.Random) -> float:
        """Seconds that one chunk spends on the way."""
        return 0.0

    def bytes_per_s(self) -> float:
        """Upper bound of the rate."""
        return math.inf

    def silence_s(self) -> float | None:
        """Seconds without incoming data after which the connection is closed; None: never."""
        return None

    def reset_s(self) -> float | None:
        """Seconds from the first data, or the end, to the connection's reset; None: it isn't reset."""
        return None

    def end_delay_s(self) -> float:
        """Seconds for which the end of the stream is held, once all data has gone on."""
        return 0.0

    def slice_bytes(self, rng: random.Random) -> float:
        """The most bytes of a chunk that go on in one piece; asked for every piece."""
        return math.inf

    def gap_s(self) -> float:
        """Seconds between one piece and the next."""
        return 0.0

    def limit_bytes(self) -> float:
        """Bytes that get through, counted from when the toxic came; the connection is closed after them."""
        return math.inf


@dataclass(frozen=True)
class NoopAttributes(Attributes):
    """Does nothing."""

    touches_data: ClassVar[bool] = False


@dataclass(frozen=True)
class LatencyAttributes(Attributes):
    """Delays every chunk by `latency` +/- `jitter` milliseconds."""

    latency: int = 0
    jitter: int = 0

    # 335 MB/s at 100 ms, 33 MB/s at 1 s.
    window_bytes: ClassVar[int] = DELAYED_WINDOW

    def delay_s(self, rng: random.Random) -> float:
        """Uniform over the jitter; never negative."""
        return max(0.0, self.latency + self.jitter * rng.uniform(-1.0, 1.0)) / 1000


@dataclass(frozen=True)
class BandwidthAttributes(Attributes):
    """Carries at most `rate` KB/s; at 0 nothing gets on until the rate changes or the toxic is removed."""

    rate: int = 0

    def bytes_per_s(self) -> float:
        """The rate in bytes."""
        return float(self.rate * _KILOBYTE)


@dataclass(frozen=True)
class TimeoutAttributes(Attributes):
    """Drops all data; closes the connection after `timeout` ms without any, or on removal (0: then only)."""

    timeout: int = 0

    swallows: ClassVar[bool] = True
    closes_on_removal: ClassVar[bool] = True

    def silence_s(self) -> float | None:
        """The timeout in seconds."""
        return self.timeout / 1000 if self.timeout else None


@dataclass(frozen=True)
class ResetPeerAttributes(Attributes):
    """Ends the connection `timeout` ms after the first data, which is dropped with all that follows.

    An end of the stream counts as data; an idle connection stays open. Once the time runs, nothing stops it.
    Connections that were made while the toxic exists end in a reset, whatever ends them; those from before are
    closed normally.
    """

    timeout: int = 0

    resets_all: ClassVar[bool] = True

    def reset_s(self) -> float:
        """The timeout in seconds."""
        return self.timeout / 1000


@dataclass(frozen=True)
class SlowCloseAttributes(Attributes):
    """Holds the end of the stream for `delay` ms; changing a toxic of this direction starts the time anew."""

    delay: int = 0

    touches_data: ClassVar[bool] = False

    def end_delay_s(self) -> float:
        """The delay in seconds."""
        return self.delay / 1000


@dataclass(frozen=True)
class SlicerAttributes(Attributes):
    """Cuts chunks into slices of `average_size` +/- `size_variation` bytes, `delay` microseconds apart."""

    average_size: int = 0
    size_variation: int = 0
    delay: int = 0

    def slice_bytes(self, rng: random.Random) -> float:
        """Uniform over the variation."""
        if not self.average_size:
            return math.inf
        return max(1, self.average_size + rng.randint(-self.size_variation, self.size_variation))

    def gap_s(self) -> float:
        """The delay in seconds."""
        return self.delay / 1_000_000


@dataclass(frozen=True)
class LimitDataAttributes(Attributes):
    """Lets exactly `bytes` bytes through and closes the connection then; at 0, at the first data."""

    bytes: int = 0

    def limit_bytes(self) -> float:
        """The limit."""
        return self.bytes


@dataclass(frozen=True)
class CorruptAttributes(Attributes):
    """Turns over one bit in each block of `every` bytes once `after` bytes have passed, `count` in all (0: no end).

    Bytes count from when the toxic came, over all connections that it hits; at an `every` of 0 each byte is a block.
    Which byte of a block, and which of its bits, follows from `seed`, the link and the direction.
    """

    after: int = 0
    every: int = 0
    count: int = 0
    seed: int = 0


REGISTRY: Mapping[str, type[Attributes]] = {
    "noop": NoopAttributes, "latency": LatencyAttributes, "bandwidth": BandwidthAttributes,
    "timeout": TimeoutAttributes, "reset_peer": ResetPeerAttributes, "slow_close": SlowCloseAttributes,
    "slicer": SlicerAttributes, "limit_data": LimitDataAttributes, "corrupt": CorruptAttributes}


@dataclass(frozen=True)
class ToxicSettings:
    """One toxic of one proxy, as the HTTP API shows it."""

    name: str
    type: str
    stream: str
    toxicity: float
    attributes: Attributes
    draw: str = ""
    """Toxics of a proxy with the same one, and the same toxicity, hit the same connections; ours alone."""

    def as_json(self) -> dict[str, Any]:
        """The toxic as the HTTP API writes it."""
        return {"attributes": _values(self.attributes), "name": self.name, "type": self.type,
                "stream": self.stream, "toxicity": self.toxicity} | ({"draw": self.draw} if self.draw else {})


def new_toxic(body: Mapping[str, Any]) -> ToxicSettings:
    """The toxic that a POST to `/proxies/{proxy}/toxics` asks for.

    Raises:
        BadRequestError: the stream or type is unknown, or a field has the wrong type or range.
    """
    stream = text(body, "stream", "downstream").lower()
    if stream not in STREAMS:
        raise BadRequestError("stream was invalid, can be either upstream or downstream")
    kind = text(body, "type", "")
    if kind not in REGISTRY:
        raise BadRequestError("invalid toxic type")
    name = text(body, "name", "") or f"{kind}_{stream}"
    toxicity = probability(body, "toxicity", 1.0)
    return ToxicSettings(name, kind, stream, toxicity, _attributes(body, REGISTRY[kind]()), text(body, "draw", ""))


def updated_toxic(toxic: ToxicSettings, body: Mapping[str, Any]) -> ToxicSettings:
    """The toxic with the attributes and toxicity that `body` names; the others, and its identity, stay.

    Raises:
        BadRequestError: a field has the wrong type or range.
    """
    return replace(toxic, toxicity=probability(body, "toxicity", toxic.toxicity),
                   attributes=_attributes(body, toxic.attributes), draw=text(body, "draw", toxic.draw))


def _values(attributes: Attributes) -> dict[str, int]:
    return {field.name: getattr(attributes, field.name) for field in fields(attributes)}


def _attributes(body: Mapping[str, Any], current: Attributes) -> Attributes:
    given = nested(body, "attributes")  # those that the type doesn't have are passed over, as Toxiproxy does
    return type(current)(**{name: whole(given, name, value) for name, value in _values(current).items()})
