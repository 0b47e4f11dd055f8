"""What a toxic is set to, and the arithmetic of when the bytes it touches may go on.

Field names, units and defaults are those of Toxiproxy's HTTP API documentation
(https://github.com/Shopify/toxiproxy#toxics). Settings are frozen and shared by all connections of a proxy;
what one direction of one connection remembers lives in its own `Pace`. A further toxic type is one more
subclass of `Attributes` and one more line in `REGISTRY`; where the hooks below can't express it, it adds a
hook that is neutral by default.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

from harness.links.fields import BadRequestError, nested, probability, text, whole

STREAMS = ("upstream", "downstream")

_KILOBYTE = 1000  # Toxiproxy's KB/s are decimal: `rate` bytes every millisecond
_SLICE_S = 0.1  # a slow link hands over what it carries every 100 ms, not when a large chunk is complete
_CATCH_UP_S = 0.1  # how much lateness (a timer's, a stalled receiver's) a rate limit makes up for
_PLAIN_WINDOW = 256 * 1024
_DELAYED_WINDOW = 16 * 1024 * 1024


@dataclass(frozen=True)
class Attributes:
    """What a toxic does to the bytes of one direction; the neutral base of all types."""

    window_bytes: ClassVar[int] = _PLAIN_WINDOW  # that may be under way in one direction of a connection
    swallows: ClassVar[bool] = False  # no byte gets through
    closes_on_removal: ClassVar[bool] = False  # a stream with a hole in it can't go on once the toxic is gone

    def delay_s(self, rng: random.Random) -> float:
        """Seconds that one chunk spends on the way."""
        return 0.0

    def bytes_per_s(self) -> float:
        """Upper bound of the rate."""
        return math.inf

    def silence_s(self) -> float | None:
        """Seconds without incoming data after which the connection is closed; None: never."""
        return None


@dataclass(frozen=True)
class Latency(Attributes):
    """Delays every chunk by `latency` +/- `jitter` milliseconds."""

    latency: int = 0
    jitter: int = 0

    # As wide as the bandwidth-delay product needs: 160 MB/s at 100 ms.
    window_bytes: ClassVar[int] = _DELAYED_WINDOW

    def delay_s(self, rng: random.Random) -> float:
        """Uniform over the jitter; never negative."""
        return max(0.0, self.latency + self.jitter * rng.uniform(-1.0, 1.0)) / 1000


@dataclass(frozen=True)
class Bandwidth(Attributes):
    """Carries at most `rate` KB/s; at 0 nothing gets on until the rate changes or the toxic is removed."""

    rate: int = 0

    def bytes_per_s(self) -> float:
        """The rate in bytes."""
        return float(self.rate * _KILOBYTE)


@dataclass(frozen=True)
class Timeout(Attributes):
    """Drops all data; closes the connection after `timeout` ms without any, or on removal (0: then only)."""

    timeout: int = 0

    swallows: ClassVar[bool] = True
    closes_on_removal: ClassVar[bool] = True

    def silence_s(self) -> float | None:
        """The timeout in seconds."""
        return self.timeout / 1000 if self.timeout else None


REGISTRY: Mapping[str, type[Attributes]] = {"latency": Latency, "bandwidth": Bandwidth, "timeout": Timeout}


@dataclass(frozen=True)
class ToxicSettings:
    """One toxic of one proxy, as the HTTP API shows it."""

    name: str
    type: str
    stream: str
    toxicity: float
    attributes: Attributes

    def as_json(self) -> dict[str, Any]:
        """The toxic as the HTTP API writes it."""
        return {"attributes": _values(self.attributes), "name": self.name, "type": self.type,
                "stream": self.stream, "toxicity": self.toxicity}


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
    return ToxicSettings(name, kind, stream, toxicity, _attributes(body, REGISTRY[kind]()))


def updated_toxic(toxic: ToxicSettings, body: Mapping[str, Any]) -> ToxicSettings:
    """The toxic with the attributes and toxicity that `body` names; the others, and its identity, stay.

    Raises:
        BadRequestError: a field has the wrong type or range.
    """
    return replace(toxic, toxicity=probability(body, "toxicity", toxic.toxicity),
                   attributes=_attributes(body, toxic.attributes))


def _values(attributes: Attributes) -> dict[str, int]:
    return {field.name: getattr(attributes, field.name) for field in fields(attributes)}


def _attributes(body: Mapping[str, Any], current: Attributes) -> Attributes:
    given = nested(body, "attributes")  # those that the type doesn't have are passed over, as Toxiproxy does
    return type(current)(**{name: whole(given, name, value) for name, value in _values(current).items()})


class Pace:
    """When the bytes of one direction of one connection may go on, given the toxics that hit it.

    Times are seconds of the caller's monotonic clock, which is never read here. Delays add up and the lowest
    rate wins, so the order in which toxics were added makes no difference.
    """

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._toxics: tuple[Attributes, ...] = ()
        self._free_at = -math.inf  # when the rate limit has carried all that was asked of it
        self._rate = math.inf
        self.window_bytes = _PLAIN_WINDOW
        self.swallows = False
        self.silence_s: float | None = None

    def set(self, toxics: Iterable[Attributes], now: float) -> None:
        """Take `toxics` for all data that hasn't gone on by `now`; an old rate limit is forgotten."""
        self._toxics = tuple(toxics)
        self._free_at = now
        self._rate = min((toxic.bytes_per_s() for toxic in self._toxics), default=math.inf)
        self.window_bytes = max((toxic.window_bytes for toxic in self._toxics), default=_PLAIN_WINDOW)
        self.swallows = any(toxic.swallows for toxic in self._toxics)
        silences = (toxic.silence_s() for toxic in self._toxics)
        self.silence_s = min((silence for silence in silences if silence is not None), default=None)

    @property
    def untouched(self) -> bool:
        """True where no toxic hits: data may go on as it comes."""
        return not self._toxics

    @property
    def slice_bytes(self) -> int | None:
        """The most bytes to hand over at once, so that a slow link trickles; None: no limit."""
        return None if math.isinf(self._rate) else max(1, int(self._rate * _SLICE_S))

    def ready_at(self, arrival: float) -> float:
        """When a chunk that came at `arrival` has been delayed; draws the jitter, so ask once per chunk."""
        return arrival + sum(toxic.delay_s(self._rng) for toxic in self._toxics)

    def release_at(self, ready: float, size: int, now: float) -> float:
        """When `size` bytes that are ready at `ready` have passed the rate limit; counts them as carried."""
        if math.isinf(self._rate):
            return ready
        if self._rate == 0:
            return math.inf
        start = max(ready, self._free_at, now - _CATCH_UP_S)
        self._free_at = start + size / self._rate
        return self._free_at
