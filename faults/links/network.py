"""Where a node is: far away, behind a thin link, or partitioned."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from diloco_chaos.faults.base import Drawn, FaultContext, Observation
from diloco_chaos.faults.evidence import SILENT, Effect, Evidence, Injection, between_contributions
from diloco_chaos.faults.links.apart import apart, contradiction
from diloco_chaos.faults.links.base import DIRECTIONS, FOR, MOST_PROBE_BYTES, SLACK_S, TOLERANCE, LinkFault
from diloco_chaos.faults.links.profiles import PROFILES
from diloco_chaos.harness.base.units import Rate, Seconds, show_bytes, show_seconds
from diloco_chaos.harness.links.probe import Sounding
from diloco_chaos.harness.links.toxic import Toxic
from diloco_chaos.harness.places.base import Ability
from diloco_chaos.harness.places.capabilities import SeesBeside, SharedLinks
from diloco_chaos.harness.record.tape.events import Hello, Lost
from diloco_chaos.harness.trainers.core.programs import ends

_RATE_PROBE_S = 0.15
_BOTH_WAYS = 1.5
"""Beyond so many times its delay a probe of some connections was delayed both ways."""
_LEAST_PROBE_BYTES = 1 << 14
_UNLINKED = "with `--on compose`, `disconnect` cuts such connections, too"


class Latency(LinkFault):
    """A wide-area network: delay with jitter and, where asked for, a rate. Connections stay."""

    toxic: ClassVar[str] = "latency"
    measures: ClassVar[str] = "delay_s"
    delays: ClassVar[bool] = True
    shown_as = "far"
    drawn = Drawn(60, {**FOR, "delay": ("20ms", "5ms", "50ms", "100ms"), "jitter": ("0s", "5ms", "20ms"),
                       "rate": ("10MB/s", "1MB/s")}, family="link")

    kind: Literal["latency"] = "latency"
    profile: Literal["", "metro", "continental", "transatlantic"] = ""
    """A distance by name (faults/links/profiles.py): sets delay, jitter and rate."""
    delay: Seconds = Field(0.02, gt=0)
    """Each way."""
    jitter: Seconds = 0.0
    """Uniform, plus or minus."""
    rate: Rate | None = None
    """Bytes per second each way."""

    @model_validator(mode="before")
    @classmethod
    def _by_profile(cls, value: Any) -> Any:
        """A profile's figures, where nothing else is said."""
        name = value.get("profile") if isinstance(value, dict) else None
        if isinstance(name, str) and name in PROFILES:
            profile = PROFILES[name]
            return {"delay": f"{profile.delay!r}s", "jitter": f"{profile.jitter!r}s",
                    "rate": f"{profile.rate!r}B/s"} | value
        return value

    def toxics(self, fault: str) -> list[Toxic]:
        """Delay and rate are two toxics."""
        rate = [] if self.rate is None else [
            self._one("bandwidth", stream, _bandwidth(self.rate), fault) for stream in self.streams]
        return super().toxics(fault) + rate

    def attributes(self) -> Mapping[str, int]:
        """Milliseconds."""
        return {"latency": max(1, round(self.delay * 1e3)), "jitter": round(self.jitter * 1e3)}

    def measured(self, sounding: Sounding, baseline: float) -> float | None:
        """Seconds that each way takes longer; where the directions are drawn apart, those that it takes longer one way,
        if that is what it took."""
        if not sounding.answered:
            return None
        longer = sounding.seconds - baseline
        both = len(self.streams) == 2 and (self.toxicity == 1 or longer > _BOTH_WAYS * self.delay)
        return longer / 2 if both else longer

    def near(self, value: float) -> bool:
        """Give or take half of it, the jitter, and what a timer needs."""
        return abs(value - self.delay) <= TOLERANCE * self.delay + self.jitter + SLACK_S

    def _through(self, hit: FaultContext, link: str) -> Observation:
        observed = super()._through(hit, link)
        if self.rate is not None and self.toxicity == 1 and observed["ok"] and hit.lasts():
            sounding = self.loaded(hit, link, _load(self.rate))
            if not hit.lasts():  # its delay was observed in time, its rate was not
                return observed
            rate = _speed(sounding, self.rate, hit.baseline(link) + len(self.streams) * self.delay) or 0.0
            observed |= {"rate_bytes_per_s": round(rate), "ok": _near(rate, self.rate)}
        return observed

    def what(self) -> str:
        """Far away: `+12 ms ± 3 ms latency, 20 MB/s cap`."""
        rate = "" if self.rate is None else f", {self.rate / 1e6:g} MB/s cap"
        where = f" ({self.profile})" if self.profile else ""
        return f"+{show_seconds(self.delay)} ± {show_seconds(self.jitter)} latency{rate}{where}"


class Bandwidth(LinkFault):
    """Thin links; or one thin link, through which all of them go."""

    felt_one_way: ClassVar[bool] = True
    toxic: ClassVar[str] = "bandwidth"
    measures: ClassVar[str] = "rate_bytes_per_s"
    shown_as = "far"
    drawn = Drawn(70, {**FOR, "rate": ("1MB/s", "50kB/s", "10kB/s")}, family="link")

    kind: Literal["bandwidth"] = "bandwidth"
    rate: Rate = Field(1e6, ge=1e3)
    """Bytes per second each way."""
    shared: bool = False
    """Whether the targets have it all together, as those have who share the way into a site; else each by itself."""

    @model_validator(mode="after")
    def _all_of_it(self) -> Bandwidth:
        if self.shared and self.toxicity != 1:
            raise ValueError("a rate that links share concerns every connection: leave toxicity out")
        return self

    def requires(self) -> frozenset[Ability]:
        """Toxiproxy has no rate that several links share."""
        return super().requires() | (frozenset({"share_links"}) if self.shared else frozenset())

    def put(self, hit: FaultContext) -> None:
        """A toxic on each link, or one rate for all."""
        if self.shared:
            hit.having(SharedLinks).share_links(hit.links(self.targets), self.rate, self.streams)
        else:
            super().put(hit)

    def undo(self, hit: FaultContext) -> None:
        """Take it off."""
        if self.shared:
            hit.having(SharedLinks).share_links(hit.links(self.targets), None, self.streams)
        else:
            super().undo(hit)

    def attributes(self) -> Mapping[str, int]:
        """Kilobytes per second."""
        return _bandwidth(self.rate)

    def ask(self, hit: FaultContext, link: str) -> Sounding:
        """A payload that takes a while at this rate."""
        return self.loaded(hit, link, _load(self.rate))

    def measured(self, sounding: Sounding, baseline: float) -> float | None:
        """Bytes per second."""
        return _speed(sounding, self.rate, baseline)

    def near(self, value: float) -> bool:
        """Give or take half of it; where others share it, any less."""
        return _near(value, self.rate) or (self.shared and 0 < value <= self.rate)

    def what(self) -> str:
        """Thin."""
        return f"limited to {self.rate / 1e6:g} MB/s" + (" all together" if self.shared else "")


class Partition(LinkFault):
    """Cut off. Both ways: the link is taken down, its connections break and new ones are refused. One way: data in that
    direction vanishes, and nobody is told. The nodes go on by themselves."""

    toxic: ClassVar[str] = "timeout"
    measures: ClassVar[str] = "silent_s"
    mutes: ClassVar[bool] = True
    silences: ClassVar[bool] = True
    cuts_off: ClassVar[bool] = True
    shown_as = "partitioned"
    drawn = Drawn(50, {**FOR, "direction": DIRECTIONS}, family="link")

    kind: Literal["partition"] = "partition"

    @model_validator(mode="after")
    def _whole(self) -> Partition:
        if self.toxicity != 1:
            raise ValueError("a partition concerns every connection; for some of them use `timeout` with `toxicity`")
        return self

    def put(self, hit: FaultContext) -> None:
        """Cut the links."""
        if self.direction != "both":
            super().put(hit)
            return
        for link in hit.links(self.targets):
            hit.cluster.disable_link(link)

    def inject(self, hit: FaultContext) -> Observation:
        """Cut them, and say who is kept apart by that where the nodes are commands."""
        observed = super().inject(hit)
        nodes = {end for target in self.targets for end in ends(target)}
        if self.direction != "both" or any(hit.spec(node).program is None for node in nodes):
            return observed
        kept = apart({name: hit.spec(name) for name in hit.cluster.states()}, hit.links(self.targets))
        return observed | ({"apart": kept} if kept else {})

    def observe(self, hit: FaultContext) -> Observation:
        """Probe, and look for connections that pass no link."""
        observed = super().observe(hit)
        beside = None if not hit.lasts() or (sees := hit.cluster.having(SeesBeside)) is None else sees.beside()
        return observed | ({"beside": " | ".join(map(", ".join, beside))} if beside else {})

    def observe_end(self, hit: FaultContext) -> Observation:
        """Return what has passed up to the run's end."""
        return self._carried(hit, "end")

    def undo(self, hit: FaultContext) -> None:
        """Let the links listen again."""
        if self.direction != "both":
            super().undo(hit)
            return
        for link in hit.links(self.targets):
            hit.cluster.enable_link(link)

    def verify(self, run: Evidence, on: Injection) -> Effect:
        """Return whether nothing got through, and no connection passed by."""
        why = contradiction(run, on)
        return Effect(False, f"the links were cut, but {why}; {_UNLINKED}") if why else super().verify(run, on)

    def took_effect(self, run: Evidence, on: Injection) -> Effect:
        """Judge it by how long nothing came through: from the loss of the connection to the next hello; one way: from
        one contribution to the next. Where bytes are counted and no event reports connections, judge it by no probe
        getting through."""
        if not on.observed.get("ok"):
            return Effect(False, "a probe got through" if "ok" in on.observed else "no probe was made")
        if "bytes_before" in on.observed:
            return Effect(True, f"no probe got through; {show_bytes(float(on.observed['bytes_before']))} had before")
        if "connections_before" in on.observed:
            return Effect(True, f"no probe got through; connections there before: "
                                f"{on.observed['connections_before']:.0f}")
        silent = []
        for target in self.affected_nodes(run.learners):
            if self.direction != "both":
                silent.append(between_contributions(run, target, on.began, on.ended or run.end))
                continue
            lost = next((event.t for event in run.tape.of(Lost, node=run.recorder)
                         if event.learner == target and event.t > on.began - 0.1), None)
            if lost is None:
                return Effect(False, f"the syncer never lost {target}")
            back = next((event.t for event in run.tape.of(Hello, node=run.recorder)
                         if event.learner == target and event.t > lost), run.end)
            silent.append(back - lost)
        return Effect(min(silent) >= SILENT * (self.duration or 0),
                      f"nothing came through for {show_seconds(min(silent))}")

    def ends_connections(self) -> bool:
        """Return whether connections end: cut both ways they break; cut one way they stand, and no node hears of it."""
        return self.direction == "both"

    def mutes_target(self) -> bool:
        """Unless it is only deaf."""
        return self.direction != "downstream"

    def attributes(self) -> Mapping[str, int]:
        """Return the toxic's attributes: it lasts for ever."""
        return {"timeout": 0}

    def measured(self, sounding: Sounding, baseline: float) -> float | None:
        """Seconds until we gave up; at once where the connection was refused."""
        return None if sounding.answered else sounding.seconds

    def what(self) -> str:
        """Partitioned."""
        return "partitioned"


def _bandwidth(rate: float) -> Mapping[str, int]:
    return {"rate": max(1, round(rate / 1e3))}


def _load(rate: float) -> int:
    """Bytes of a probe that measures a rate."""
    return round(min(max(rate * _RATE_PROBE_S, _LEAST_PROBE_BYTES), MOST_PROBE_BYTES))


def _speed(sounding: Sounding, rate: float, without: float) -> float | None:
    """Bytes per second of a probe that carried `_load(rate)`, where an empty one takes `without` seconds."""
    return _load(rate) / max(sounding.seconds - without, 1e-6) if sounding.answered else None


def _near(value: float, rate: float) -> bool:
    """Give or take half of it."""
    return abs(value - rate) <= TOLERANCE * rate
