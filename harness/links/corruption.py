"""Bits that a toxic `corrupt` turns over in one direction of a link, and the account of what came in and what went out.

Places are counted in bytes, over all connections that the toxic hits: where reads end makes no difference, and the same
seed turns over the same bits of the same stream.
"""

from __future__ import annotations

import random
import zlib
from dataclasses import dataclass

from diloco_chaos.harness.links.toxics import CorruptAttributes, ToxicSettings


@dataclass(frozen=True)
class Corrupted:
    """What passed a toxic, and what it changed in that."""

    bytes: int
    bits: int
    crc32_in: int
    """Of all bytes that came."""
    crc32_out: int
    """Of all bytes that went on."""


class Corruption:
    """One toxic of one link. It goes on counting where the toxic is removed and comes back."""

    def __init__(self, proxy: str, toxic: ToxicSettings, settings: CorruptAttributes) -> None:
        self.direction = toxic.stream
        self._chance = random.Random(f"{settings.seed} {proxy} {toxic.stream}")
        self._settings = settings
        self._block = settings.after  # where the block of bytes begins in which the next bit turns over
        self._passed = self._bits = self._before = self._after = 0
        self._next = self._place()

    def change(self, settings: CorruptAttributes) -> None:
        """Go on with these from the byte that comes next."""
        if settings != self._settings:
            self._settings, self._block = settings, max(settings.after, self._passed)
            self._next = self._place()

    def spoil(self, data: bytes | memoryview) -> bytes | memoryview:
        """Return what goes on instead."""
        end, spoiled = self._passed + len(data), data
        while self._next < end and self._left:
            if spoiled is data:
                spoiled = memoryview(bytearray(data))
            spoiled[self._next - self._passed] ^= 1 << self._chance.randrange(8)  # type: ignore[index]
            self._bits += 1
            self._block += max(1, self._settings.every)
            self._next = self._place()
        self._before = zlib.crc32(data, self._before)
        self._after = zlib.crc32(spoiled, self._after)
        self._passed = end
        return spoiled

    @property
    def account(self) -> Corrupted:
        """Return what was done until now."""
        return Corrupted(self._passed, self._bits, self._before, self._after)

    @property
    def _left(self) -> bool:
        return not self._settings.count or self._bits < self._settings.count

    def _place(self) -> int:
        return self._block + self._chance.randrange(max(1, self._settings.every))


class Corruptions:
    """All of one server's, those of deleted links and removed toxics included."""

    def __init__(self) -> None:
        self._by_name: dict[tuple[str, str], Corruption] = {}

    def of(self, proxy: str, toxic: ToxicSettings) -> Corruption | None:
        """Return that of a toxic with the settings that it has now; None: it corrupts nothing."""
        if not isinstance(settings := toxic.attributes, CorruptAttributes):
            return None
        key = proxy, toxic.name
        if (known := self._by_name.get(key)) is None or known.direction != toxic.stream:
            known = self._by_name[key] = Corruption(proxy, toxic, settings)
        known.change(settings)
        return known

    def as_json(self) -> list[dict[str, str | int]]:
        """Return all accounts, as the HTTP API writes them."""
        return [{"proxy": proxy, "toxic": toxic, "direction": each.direction, **vars(each.account)}
                for (proxy, toxic), each in sorted(self._by_name.items())]
