"""What all faults of links share: toxics put on, observed through probes, and taken off.

A link bears the name of the learner whose it is; the syncer as a target means all of them. Toxics, their units and what
they do: https://github.com/Shopify/toxiproxy#toxics
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from statistics import median
from typing import Any, ClassVar, Literal

from pydantic import Field

from diloco_chaos.faults.base import DURATIONS, Fault, FaultContext, Observation
from diloco_chaos.faults.evidence import Effect, Evidence, Injection
from diloco_chaos.harness.base.units import Part, names, show_seconds
from diloco_chaos.harness.links.probe import Sounding
from diloco_chaos.harness.links.toxic import Toxic, each_way
from diloco_chaos.harness.places.base import Ability
from diloco_chaos.harness.places.capabilities import Carries, DrawsLinks
from diloco_chaos.harness.trainers.core.programs import ends

TOLERANCE = 0.5
"""A measured delay or rate within half of what was asked for counts as observed."""
SLACK_S = 0.002
"""What timers and a busy machine add to any delay."""
MOST_PROBE_BYTES = 1 << 22
FOR: Mapping[str, Any] = {"for": DURATIONS}
DIRECTIONS = ("both", "upstream", "downstream")
"""What explorations draw of every fault of links, and of some."""
_PROBES = 3
_SAMPLE, _MOST_SAMPLE = 16, 160
"""Probes for a toxic that hits only some connections, at least and at most."""
_SELDOM = 1e-3
"""So probable at most may it be that none of them is hit, or so few or so many as prove that something else was done.
"""
_TOO_LATE: Observation = {"ok": False, "error": "it was over before it could be measured"}


class LinkFault(Fault):
    """Toxics on the targets' links. Subclasses say which toxic it is, how to ask through it, and what that measures."""

    needs: ClassVar[frozenset[Ability]] = frozenset({"links"})
    on_links: ClassVar[bool] = True
    heeds_end: ClassVar[bool] = True
    toxic: ClassVar[str] = ""
    """Toxiproxy's name of it."""
    measures: ClassVar[str] = ""
    """What a probe measures, with its unit."""
    mutes: ClassVar[bool] = False
    """Whether a probe waits for nothing, and as long as it can: then they are all made at once."""

    felt_one_way: ClassVar[bool] = False
    """Whether a probe feels only what hits one direction, though both may be hit."""
    silences: ClassVar[bool] = False
    """Whether it may be that nothing passes while it lasts."""

    direction: Literal["both", "upstream", "downstream"] = "both"
    """`upstream`: from the learner to the syncer."""
    toxicity: Part = Field(1.0, gt=0)
    """Probability with which a connection is hit, in one direction or in both."""

    def inject(self, hit: FaultContext) -> Observation:
        """Put it on."""
        before = self._carried(hit, "before")
        self.put(hit)
        return before

    def put(self, hit: FaultContext) -> None:
        """Put the toxics on."""
        for link in hit.links(self.targets):
            hit.cluster.degrade(link, self.toxics(hit.id))

    def undo(self, hit: FaultContext) -> None:
        """Take them off."""
        for link in hit.links(self.targets):
            hit.cluster.restore(link, self.toxics(hit.id))

    def observe(self, hit: FaultContext) -> Observation:
        """Probe every link while the fault lasts; return what a link observed that did not feel it, if there is one,
        else the last."""
        links = hit.links(self.targets)
        several = hit.together if self.mutes else _in_turn  # probes must not compete for this machine
        observed: list[Observation] = several(lambda link: self._through(hit, link), links)
        in_time = [each for each in observed if each != _TOO_LATE] or observed
        return next((probe for probe in in_time if not probe["ok"]), in_time[-1])

    def observe_undone(self, hit: FaultContext) -> Observation:
        """Return whether probes get through again."""
        carried = self._carried(hit, "after")
        return {"back": all(hit.probe(link).answered for link in hit.links(self.targets))} | carried

    def _carried(self, hit: FaultContext, when: str) -> Observation:
        """Return the bytes that the links have carried until now and the connections that stand, where known."""
        if (carries := hit.cluster.having(Carries)) is None:
            return {}
        links = hit.links(self.targets)
        counts = {"bytes": carries.carried(links), "connections": carries.connections(links)}
        return {f"{what}_{when}": float(count) for what, count in counts.items() if count is not None}

    def verify(self, run: Evidence, on: Injection) -> Effect:
        """Return what `took_effect` returns; a fault on a link that no node uses has no effect."""
        before, after = on.observed.get("bytes_before"), on.observed.get("bytes_after")
        if before is not None and after is not None:
            if not after:
                return Effect(False, f"nothing ever passed there: nobody uses that link{self._other_way()}")
            if not self.silences and after <= before:
                return Effect(False, f"nothing passed there meanwhile{self._other_way()}")
        elif on.observed.get("connections_before", 1) == on.observed.get("connections_after", 1) == 0:
            return Effect(False, f"there was no connection: nobody uses that link{self._other_way()}")
        return self.took_effect(run, on)

    def _other_way(self) -> str:
        """Return a hint at the links with the same ends in the other direction that were not aimed at; empty without
        any."""
        others = [".".join(reversed(ends(link))) for link in self.targets if len(ends(link)) > 1]
        missed = [link for link in others if link not in self.targets]
        return f" (a link is named after who connects; it may be {', '.join(missed)})" if missed else ""

    def took_effect(self, run: Evidence, on: Injection) -> Effect:
        """Judge it by what the probes measured, in the toxic's own unit."""
        value = on.observed.get(self.measures)
        if value is None:
            return Effect(False, "no probe noticed it")
        words = _in_words(self.measures, float(value))
        if self.measures == "delay_s":
            words += " each way" if len(self.streams) == 2 else " one way"
            rate = on.observed.get("rate_bytes_per_s")
            words += f", {float(rate) / 1e6:.1f} MB/s" if rate else ""
        if "hit" in on.observed:
            words += f" on {on.observed['hit']} connections"
        return Effect(bool(on.observed.get("ok")), words)

    def toxics(self, fault: str) -> list[Toxic]:
        """One per direction, under the fault's own name."""
        return [self._one(self.toxic, stream, self.attributes(), fault) for stream in self.streams]

    def _one(self, kind: str, stream: str, attributes: Mapping[str, int], fault: str) -> Toxic:
        """Return a toxic of one direction; all of a fault are to hit the same connections."""
        return Toxic(kind, stream, attributes, self.toxicity, f"{fault}-{kind}-{stream}", fault, len(self.streams))

    @property
    def streams(self) -> tuple[str, ...]:
        """The directions, by Toxiproxy's names."""
        return ("upstream", "downstream") if self.direction == "both" else (self.direction,)

    def attributes(self) -> Mapping[str, int]:
        """The toxic's attributes, in its units."""
        raise NotImplementedError

    def ask(self, hit: FaultContext, link: str) -> Sounding:
        """One probe that this toxic can be observed by."""
        return hit.probe(link)

    def loaded(self, hit: FaultContext, link: str, size: int) -> Sounding:
        """A probe that carries so many bytes in the direction that is hit, downstream where both are."""
        return hit.probe(link, 0, size) if self.direction == "upstream" else hit.probe(link, size)

    def measured(self, sounding: Sounding, baseline: float) -> float | None:
        """Return what a probe measured; None: nothing that this toxic would do."""
        raise NotImplementedError

    def near(self, value: float) -> bool:
        """Return whether the value is what was asked for."""
        return True

    def _through(self, hit: FaultContext, link: str) -> Observation:
        share = self._share_hit(hit)
        count = _PROBES if share == 1 else _sample(share)
        baseline = hit.baseline(link)
        several = hit.together if self.mutes else _in_turn
        heard = [each for each in several(lambda _: self._sound(hit, link), list(range(count))) if each is not None]
        if not heard:
            return _TOO_LATE
        count = len(heard)
        values = [self.measured(sounding, baseline) for sounding, _ in heard]
        bitten = [value for value in values if value is not None and self.near(value)]
        known = bitten or [value for value in values if value is not None]
        observed: Observation = heard[-1][1] | ({self.measures: round(median(known), 4)} if known else {})
        if share == 1:
            return observed | {"ok": 2 * len(bitten) > count}
        return observed | {"hit": f"{len(bitten)} of {count}",
                           "ok": bool(bitten) and _probable(len(bitten), count, share)}

    def _share_hit(self, hit: FaultContext) -> float:
        """Return the share of probes that are to feel it: that of the connections that are hit, unless the directions
        are drawn apart there and a probe feels only one of them."""
        draws = hit.cluster.having(DrawsLinks)
        if self.toxicity == 1 or not self.felt_one_way or draws is None or draws.draws_once():
            return self.toxicity
        return each_way(self.toxicity, len(self.streams))

    def _sound(self, hit: FaultContext, link: str) -> tuple[Sounding, Observation] | None:
        """Return what a probe heard and what the links had carried by then; None: the fault was over. One that is never
        answered tells of when it was sent."""
        if not hit.lasts():
            return None
        sounding, carried = self.ask(hit, link), self._carried(hit, "after")
        return (sounding, carried) if hit.lasts() or (self.mutes and not sounding.answered) else None

    def _at_streams(self) -> str:
        ways = "" if self.direction == "both" else f", {self.direction} only"
        return ways + ("" if self.toxicity == 1 else f", {self.toxicity:.0%} of connections")

    def describe(self) -> str:
        """Return what the fault does, in words for people."""
        return f"{names(self.targets)} {self.what()}{self._at_streams()} {self.describe_duration()}"

    def what(self) -> str:
        """Return what is done to the link, in words for people."""
        raise NotImplementedError


def _sample(share: float) -> int:
    """Return how many probes it takes so that hardly ever none of them is hit, where this share is."""
    return min(_MOST_SAMPLE, max(_SAMPLE, math.ceil(math.log(_SELDOM) / math.log1p(-share))))


def _probable(hits: int, count: int, share: float) -> bool:
    """Return whether so few hits, and so many, are more probable than `_SELDOM` where this share of connections is
    hit: the tails of the binomial distribution."""
    chances = [math.comb(count, number) * share ** number * (1 - share) ** (count - number)
               for number in range(count + 1)]
    return min(sum(chances[:hits + 1]), sum(chances[hits:])) > _SELDOM


def _in_words(measure: str, value: float) -> str:
    if measure == "rate_bytes_per_s":
        return f"{value / 1e6:.2f} MB/s"
    if measure == "bytes":
        return f"{value:.0f} bytes came back"
    before = {"close_s": "closed after ", "silent_s": "no answer in ", "reset_s": "broken after ",
              "pause_s": "a piece every "}
    return before.get(measure, "") + (f"{value * 1e3:.1f} ms" if value < 0.0995 else show_seconds(value))


def _in_turn(ask: Callable[[Any], Any], items: list[Any]) -> list[Any]:
    return [ask(item) for item in items]
