"""Links that change what they carry: bits turn over on the way."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import Field

from diloco_chaos.faults.base import FaultContext, Observation
from diloco_chaos.faults.evidence import Effect, Evidence, Injection
from diloco_chaos.faults.links.base import LinkFault
from diloco_chaos.harness.base.units import Size, show_bytes
from diloco_chaos.harness.links.corruption import Corrupted
from diloco_chaos.harness.places.base import Ability
from diloco_chaos.harness.places.capabilities import CorruptsLinks

_SHOWN = 4


class CorruptLink(LinkFault):
    """Bits turn over in what passes: one in each block of `every` bytes. Lengths and order stay as they are, and TCP's
    own checksum is right. The link server counts what it changed, and sums up what came in and what went out."""

    needs: ClassVar[frozenset[Ability]] = LinkFault.needs | {"corrupt_links"}
    toxic: ClassVar[str] = "corrupt"
    may_end_target: ClassVar[bool] = True
    shown_as = "far"

    kind: Literal["corrupt_link"] = "corrupt_link"
    every: Size = Field(1_000_000, ge=1)
    """Bytes of a block in which one bit turns over, somewhere."""
    after_bytes: Size = 0
    """So many pass first."""
    count: int = Field(0, ge=0)
    """Bits at most, of each link and direction; 0: as long as it lasts."""
    seed: int = Field(0, ge=0, lt=1 << 31)
    """Of the places; a plan's freezing sets it."""

    def attributes(self) -> Mapping[str, int]:
        """Bytes, and bits."""
        return {"after": int(self.after_bytes), "every": int(self.every), "count": self.count, "seed": self.seed}

    def observe(self, hit: FaultContext) -> Observation:
        """No probe goes through it: that would be what is changed, and not what the nodes say."""
        return {}

    def observe_end(self, hit: FaultContext) -> Observation:
        """Return what the link server has counted."""
        names = [toxic.name for toxic in self.toxics(hit.id)]
        done = hit.having(CorruptsLinks).corrupted(hit.links(self.targets), names)
        passed, bits = sum(each.bytes for each in done.values()), sum(each.bits for each in done.values())
        if not bits:
            return {"ok": False, "why": self._missed(passed)}
        bitten = [_account(side, each) for side, each in done.items() if each.bits]
        more = f"; and {len(bitten) - _SHOWN} more" if len(bitten) > _SHOWN else ""
        return {"ok": True, "hit": "; ".join(bitten[:_SHOWN]) + more, "bits": bits, "bytes": passed}

    def took_effect(self, run: Evidence, on: Injection) -> Effect:
        """Bits were turned over, as the link server counted them."""
        return Effect(bool(on.observed.get("ok")), str(on.observed.get("hit") or on.observed.get("why")
                                                       or "the link server was not asked what it changed"))

    def what(self) -> str:
        """Return that bits turn over, in words for people."""
        after = f" after {show_bytes(self.after_bytes)}" if self.after_bytes else ""
        most = f", {self.count} at most" if self.count else ""
        return f"with one bit turned over in each {show_bytes(self.every)}{after}{most}"

    def _missed(self, passed: int) -> str:
        if not passed:
            return f"nothing passed there while it lasted{self._other_way()}"
        change = " and of `after_bytes`" if self.after_bytes else ""
        return (f"{show_bytes(passed)} passed there, and no bit turned over: `every` is {show_bytes(self.every)}: "
                f"take less of it{change}")


def _account(side: str, done: Corrupted) -> str:
    return (f"{side}: {done.bits} bit{'s' * (done.bits > 1)} of {show_bytes(done.bytes)} turned over "
            f"(CRC-32 {done.crc32_in:08x} came in, {done.crc32_out:08x} went out)")
